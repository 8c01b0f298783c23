"""Add the lab's pages to lists of the core and to the sidebar."""

from memory_extras.lab.rights import KEEP_PROBES
from memory_extras.lab.views.playground import Chat, EraseTestPerson, Playground, Remember, may_play
from memory_extras.lab.views.probe import KeepProbe
from memory_extras.lab.views.recall import Recall, RecallPeople, may_recall
from memory_extras.lab.views.sample import BeginSample, ShowTrial, TryOneOfSample
from memory_extras.lab.views.trial import PANEL, TrialSubjects, TryPrompt
from memoryproject.admin_menu import add_page
from moments_app.models import MemoryAtom, PromptResource
from moments_app.operator.admin.prompt import PANELS
from moments_app.operator.transcript import TURN_LINKS, TurnLink
from sessions_app.admin.base import add_views
from sessions_app.models import Session, UserProfile

add_views(MemoryAtom, Recall, RecallPeople)
add_views(UserProfile, Playground, Chat, Remember, EraseTestPerson)
add_views(Session, KeepProbe)
add_views(PromptResource, TryPrompt, TrialSubjects, BeginSample, ShowTrial, TryOneOfSample)
add_page("Tuning", "Search console", "manage_search", "admin:moments_app_memoryatom_recall", may_recall)
add_page("Tuning", "Playground", "chat", "admin:sessions_app_userprofile_playground", may_play)
PANELS.append(PANEL)
TURN_LINKS.append(TurnLink("save as probe", "Save turn {} as probe", "admin:sessions_app_session_probe", KEEP_PROBES))
