"""The course as a reader sees it: JupyterLab and rendered notebooks in Chromium."""
