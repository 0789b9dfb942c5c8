"""What scripts/site, which makes the site, tells Sphinx."""
from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

lexers["csv"] = TextLexer()
project = "pipewright"
extensions = ["myst_parser"]
myst_heading_anchors = 6  # as GitHub names the anchors of headings
language = "en"
highlight_language = "text"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = html_show_copyright = False
html_show_search_summary = False  # needs the texts of other pages, which browsers do not load from disk
html_permalinks_icon = "#"
pygments_style, pygments_dark_style = "default", "native"
