"""Words that follow "moved to" and are no places: well-known employers, departments, and what people work with.

Nothing in "moved to Google" says that it is no town, so the commonest are listed. Who moves to one of the first changes
the job; who moves to one of the others does not move house, and the sentence is left alone.
"""

import re

_FIRMS = (
    "Accenture Adobe Airbnb Airbus Allianz Amazon AMD Apple Atlassian AWS BASF Bayer BBC BMW Boeing Bosch "
    "Capgemini Cisco Citibank Cloudflare Databricks Datadog Deloitte Dell DeepMind Dropbox eBay Ericsson Etsy "
    "Facebook Ford Gitlab GitHub Goldman Google HP HSBC IBM IKEA Infosys Instagram Intel JPMorgan KPMG Lego "
    "LinkedIn Lyft McKinsey Mercedes Meta Microsoft Mozilla NASA Netflix Nike Nokia Novartis Nvidia OpenAI "
    "Anthropic Oracle Palantir PayPal Pfizer Philips Pinterest PwC Qualcomm Reddit Roche Salesforce Samsung SAP "
    "Shopify Siemens Snapchat Sony SpaceX Spotify Square Stripe Tesla TikTok Toyota Twitter Uber Unilever "
    "Vodafone Volkswagen Walmart Wise Zalando"
).split()
_KINDS_OF_FIRM = (
    "Inc Ltd LLC GmbH AG Corp Corporation Company Labs Bank Group Systems Software Technologies Consulting "
    "Partners Studios Hospital Ventures Foundation Industries Airlines"
).split()
_NO_PLACES = (
    "Accounting Engineering Finance HR Legal Logistics Management Marketing Operations Procurement Product "
    "Research Sales Support Android Azure Chrome Docker Django Excel Firefox Git Gmail iOS Java JavaScript Kotlin "
    "Kubernetes Linux Mac macOS MySQL Notion Outlook Postgres PostgreSQL Python React Rust Signal Slack Swift "
    "Teams Telegram TypeScript Ubuntu WhatsApp Windows Zoom"
).split()
_FIRM = re.compile(rf"^(?:{'|'.join(_FIRMS)})$|\b(?:{'|'.join(_KINDS_OF_FIRM)})\.?$")


def is_firm(name: str) -> bool:
    """Tell whether a name is one of an employer."""
    return bool(_FIRM.search(name))


def is_no_place(name: str) -> bool:
    """Tell whether a name is neither a place nor an employer."""
    return name.split(" ")[0] in _NO_PLACES
