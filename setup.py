"""The contents of the wheel: the packages with their data files, the templates, and the Python client."""

from setuptools import find_packages, setup

TEMPLATES = "memoryproject.templates"
CLIENT = "memory_platform"

setup(
    packages=[
        *find_packages(include=["memoryproject*", "sessions_app*", "moments_app*", "memory_extras*"]),
        *find_packages("clients/python"),
        TEMPLATES,
    ],
    package_dir={TEMPLATES: "templates", CLIENT: f"clients/python/{CLIENT}"},
    package_data={"": ["**/*"]},
    exclude_package_data={"": ["**/__pycache__/*", "*.pyc"]},
)
