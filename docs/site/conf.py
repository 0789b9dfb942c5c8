"""Settings of Sphinx for scripts/site."""
from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

lexers["csv"] = TextLexer()
project = "pipewright"
extensions = ["myst_parser"]
myst_heading_anchors = 6  # as GitHub names the anchors of headings
language = "en"
smartquotes = False  # --set is no dash
highlight_language = "text"
pygments_style = "none"  # site.css has the colours, light and dark
html_theme = "pages"
html_theme_path = ["."]
html_static_path = ["../../viz/page/page.css"]
html_css_files = ["page.css", "site.css"]
html_copy_source = html_use_index = False
html_show_search_summary = False  # needs the texts of other pages, which browsers do not load from disk
html_permalinks_icon = "#"
