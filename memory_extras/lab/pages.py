"""Add the lab's pages to lists of the core and to the sidebar."""

from memory_extras.lab.views.playground import Chat, EraseTestPerson, Playground, Remember, may_play
from memory_extras.lab.views.recall import Recall, RecallPeople, may_recall
from memoryproject.admin_menu import add_page
from moments_app.models import MemoryAtom
from sessions_app.admin.base import add_views
from sessions_app.models import UserProfile

add_views(MemoryAtom, Recall, RecallPeople)
add_views(UserProfile, Playground, Chat, Remember, EraseTestPerson)
add_page("Memory", "Recall console", "manage_search", "admin:moments_app_memoryatom_recall", may_recall)
add_page("Prompts", "Playground", "chat", "admin:sessions_app_userprofile_playground", may_play)
