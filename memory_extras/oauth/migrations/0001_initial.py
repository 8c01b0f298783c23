import django.db.models.deletion
import oauth2_provider.generators
import oauth2_provider.models
from django.conf import settings
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, seen

OF_CONSENTS = ('oauth_code', 'oauth_accesstoken', 'oauth_refreshtoken')
# Nothing stands for these keys any more.
WHEN_DROPPED = '''
    UPDATE sessions_app_apikey SET revoked_at = now()
    WHERE revoked_at IS NULL AND id IN (SELECT key_id FROM oauth_consent)
'''


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('sessions_app', '0046_without_oauth'),
    ]
    run_before = [('oauth2_provider', '0001_initial')]  # whose tables refer to assistants

    operations = [
        migrations.CreateModel(
            name='Assistant',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('client_id', models.CharField(db_index=True, default=oauth2_provider.generators.generate_client_id, max_length=255, unique=True, verbose_name='client ID')),
                ('redirect_uris', models.TextField(blank=True, help_text='Allowed URIs list, space separated', verbose_name='redirect URIs')),
                ('post_logout_redirect_uris', models.TextField(blank=True, default='', help_text='Allowed Post Logout URIs list, space separated', verbose_name='post logout redirect URIs')),
                ('client_type', models.CharField(choices=[('confidential', 'Confidential'), ('public', 'Public')], max_length=32, verbose_name='client type')),
                ('authorization_grant_type', models.CharField(choices=[('authorization-code', 'Authorization code'), ('urn:ietf:params:oauth:grant-type:device_code', 'Device Code'), ('implicit', 'Implicit'), ('password', 'Resource owner password-based'), ('client-credentials', 'Client credentials'), ('openid-hybrid', 'OpenID connect hybrid')], max_length=44, verbose_name='authorization grant type')),
                ('client_secret', oauth2_provider.models.ClientSecretField(blank=True, db_index=True, default=oauth2_provider.generators.generate_client_secret, help_text='Client secret for authentication', max_length=255, verbose_name='client secret')),
                ('hash_client_secret', models.BooleanField(default=True, verbose_name='hash client secret')),
                ('name', models.CharField(blank=True, max_length=255, verbose_name='name')),
                ('skip_authorization', models.BooleanField(default=False, verbose_name='skip authorization')),
                ('created', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated', models.DateTimeField(auto_now=True, verbose_name='updated')),
                ('algorithm', models.CharField(blank=True, choices=[('', 'No OIDC support'), ('RS256', 'RSA with SHA-2 256'), ('HS256', 'HMAC with SHA-2 256')], default='', max_length=5, verbose_name='algorithm')),
                ('allowed_origins', models.TextField(blank=True, default='', help_text='Allowed origins list to enable CORS, space separated', verbose_name='allowed origins')),
                ('registration_source', models.CharField(choices=[('manual', 'Manual'), ('dcr', 'Dynamic Client Registration'), ('cimd', 'Client ID Metadata Document')], default='manual', help_text='How this application was registered (manual, DCR per RFC 7591, or CIMD)', max_length=32, verbose_name='registration source')),
                ('cimd_expires_at', models.DateTimeField(blank=True, default=None, help_text='When the cached Client ID Metadata Document should be re-fetched', null=True, verbose_name='CIMD expires at')),
                ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                'verbose_name': 'assistant',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Consent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(max_length=64)),
                ('granted_by', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('assistant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='consents', to=settings.OAUTH2_PROVIDER_APPLICATION_MODEL)),
                ('key', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='consent', to='sessions_app.apikey')),
            ],
            options={
                'verbose_name': 'OAuth grant',
            },
        ),
        migrations.CreateModel(
            name='Code',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('code', models.CharField(max_length=255, unique=True, verbose_name='code')),
                ('expires', models.DateTimeField(verbose_name='expires')),
                ('redirect_uri', models.TextField(verbose_name='redirect URI')),
                ('scope', models.TextField(blank=True, verbose_name='scope')),
                ('created', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated', models.DateTimeField(auto_now=True, verbose_name='updated')),
                ('code_challenge', models.CharField(blank=True, default='', max_length=128, verbose_name='code challenge')),
                ('code_challenge_method', models.CharField(blank=True, choices=[('plain', 'plain'), ('S256', 'S256')], default='', max_length=10, verbose_name='code challenge method')),
                ('nonce', models.CharField(blank=True, default='', max_length=255, verbose_name='nonce')),
                ('claims', models.TextField(blank=True, verbose_name='claims')),
                ('resource', oauth2_provider.models.ResourceJSONField(blank=True, default=list, verbose_name='resource')),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('application', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.OAUTH2_PROVIDER_APPLICATION_MODEL, verbose_name='application')),
                ('consent', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='code', to='oauth.consent')),
            ],
            options={
                'verbose_name': 'OAuth code',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='AccessToken',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('token', models.TextField(verbose_name='token')),
                ('token_checksum', oauth2_provider.models.TokenChecksumField(db_index=True, max_length=64, unique=True, verbose_name='token checksum')),
                ('expires', models.DateTimeField(verbose_name='expires')),
                ('scope', models.TextField(blank=True, verbose_name='scope')),
                ('resource', oauth2_provider.models.ResourceJSONField(blank=True, default=list, verbose_name='resource')),
                ('created', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated', models.DateTimeField(auto_now=True, verbose_name='updated')),
                ('application', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.OAUTH2_PROVIDER_APPLICATION_MODEL, verbose_name='application')),
                ('consent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='oauth.consent')),
            ],
            options={
                'verbose_name': 'OAuth access token',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='RefreshToken',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('token', models.TextField(verbose_name='token')),
                ('token_checksum', oauth2_provider.models.TokenChecksumField(max_length=64, verbose_name='token checksum')),
                ('token_family', models.UUIDField(blank=True, editable=False, null=True, verbose_name='token family')),
                ('resource', oauth2_provider.models.ResourceJSONField(blank=True, default=list, verbose_name='resource')),
                ('created', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('updated', models.DateTimeField(auto_now=True, verbose_name='updated')),
                ('revoked', models.DateTimeField(null=True, verbose_name='revoked')),
                ('access_token', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='refresh_token', to=settings.OAUTH2_PROVIDER_ACCESS_TOKEN_MODEL, verbose_name='access token')),
                ('application', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.OAUTH2_PROVIDER_APPLICATION_MODEL, verbose_name='application')),
                ('consent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='oauth.consent')),
            ],
            options={
                'verbose_name': 'OAuth refresh token',
                'abstract': False,
            },
        ),
        migrations.AddField(
            model_name='accesstoken',
            name='source_refresh_token',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='refreshed_access_token', to=settings.OAUTH2_PROVIDER_REFRESH_TOKEN_MODEL, verbose_name='source refresh token'),
        ),
        migrations.AddIndex(
            model_name='refreshtoken',
            index=models.Index(fields=['token_family'], name='oauth_refre_token_f_9588eb_idx'),
        ),
        migrations.AlterUniqueTogether(
            name='refreshtoken',
            unique_together={('token_checksum', 'revoked')},
        ),
        let_operators('oauth_assistant', 'false', read='true'),
        let_operators('oauth_consent', seen('oauth_consent', 'sessions_app_apikey', 'key_id')),
        *(let_operators(table, seen(table, 'oauth_consent', 'consent_id')) for table in OF_CONSENTS),
        migrations.RunSQL(migrations.RunSQL.noop, WHEN_DROPPED),
    ]
