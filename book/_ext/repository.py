"""The one place that knows where the repository lives; the buttons for Colab and Binder and the notebooks' set-up follow it.

A placeholder until the project has a public home: change it here, then ``make book notebooks``.
"""

REPOSITORY = "https://github.com/minirlhf/minirlhf"
BRANCH = "main"
