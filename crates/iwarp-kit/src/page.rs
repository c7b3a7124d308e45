// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pages that need nothing else: what all of them have in common.

/// Colours and text, light and dark.
const STYLE: &str = include_str!("page.css");

/// The page from its first byte to its headline.
pub fn begin(title: &str, style: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    )
}

/// The end that closes it, with a script.
pub fn end(script: &str) -> String {
    match script {
        "" => "</body>\n</html>\n".to_owned(),
        script => format!("<script>\n{script}</script>\n</body>\n</html>\n"),
    }
}

/// A text as it stands in HTML, attributes included.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
