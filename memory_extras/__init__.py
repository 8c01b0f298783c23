"""Django apps that a site installs beside the core, by the setting `EXTRAS`. The core imports none of them."""
