"""The operator's pages, found where Django looks for them."""

import moments_app.operator.admin  # noqa: F401 (registers the lists)
