"""The one place that knows where the repository lives; the buttons for Colab and Binder and the notebooks' set-up follow it.

A placeholder until the project has a public home. Then change it here, say so with ``PUBLIC``, and run ``make book notebooks``. Until then no page shows the buttons, whose links would lead nowhere.
"""

REPOSITORY = "https://github.com/minirlhf/minirlhf"
BRANCH = "main"
PUBLIC = False
