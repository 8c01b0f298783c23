"""What a wheel holds: the packages with their data, and the templates, which stand beside them in the repository."""

from setuptools import find_packages, setup

TEMPLATES = "memoryproject.templates"

setup(
    packages=[*find_packages(include=["memoryproject*", "sessions_app*", "moments_app*"]), TEMPLATES],
    package_dir={TEMPLATES: "templates"},
    package_data={"": ["**/*"]},
    exclude_package_data={"": ["**/__pycache__/*", "*.pyc"]},
)
