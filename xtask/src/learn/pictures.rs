// SPDX-License-Identifier: MIT OR Apache-2.0

//! The book's pictures: they are as wide as the page, readable on a narrow screen, and dark where
//! the page is.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Units of a drawing that shrinks on no screen of 400 pixels, less the page's margins.
const NARROW: u32 = 360;
/// Of a wide one: the width of mdBook's text, so that its letters keep their size.
const WIDE: u32 = 760;

/// Checks a drawing. Beside `a.svg` is `a.narrow.svg`.
pub(super) fn check(path: &Path, text: &str) -> Result<()> {
    let at = path.display();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let limit = match name.strip_suffix(".narrow.svg") {
        Some(_) => NARROW,
        None => {
            let narrow = path.with_extension("narrow.svg");
            ensure!(narrow.exists(), "{at}: there is no {} for narrow screens", narrow.display());
            WIDE
        }
    };
    let root = text.split('>').next().unwrap_or_default();
    let width = width(root).with_context(|| format!("{at}: no viewBox"))?;
    ensure!(width <= limit, "{at}: {width} units wide, and would shrink beyond {limit}");
    ensure!(!root.contains(" width="), "{at}: a width of its own, so it does not shrink");
    ensure!(text.contains("<title"), "{at}: no title");
    let (light, dark) = text
        .split_once("@media (prefers-color-scheme: dark) {")
        .with_context(|| format!("{at}: no dark form"))?;
    let dark = dark.split("</style>").next().unwrap_or_default();
    for class in light.lines().filter_map(coloured) {
        ensure!(
            dark.lines().any(|line| coloured(line).is_some_and(|all| all.contains(class))),
            "{at}: {class} has a colour, and none in the dark form"
        );
    }
    ensure!(
        !outside(text).contains("=\"#"),
        "{at}: a colour outside of the style has no dark form"
    );
    Ok(())
}

/// Of the drawing's own units.
fn width(root: &str) -> Option<u32> {
    root.split_once("viewBox=\"0 0 ")?.1.split(' ').next()?.parse().ok()
}

/// The selector of a rule that sets a colour.
fn coloured(line: &str) -> Option<&str> {
    let (selector, rule) = line.split_once(" {")?;
    rule.contains(": #").then(|| selector.trim())
}

/// The drawing without its style.
fn outside(text: &str) -> &str {
    text.split_once("</style>").map_or(text, |(_, drawing)| drawing)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check;

    const GOOD: &str = "<svg viewBox=\"0 0 360 9\"><title>t</title><style>\n.a { fill: #fff; }\n\
        @media (prefers-color-scheme: dark) {\n.a { fill: #000; }\n}</style></svg>";

    #[test]
    fn a_drawing_shrinks_and_darkens() {
        let path = Path::new("a.narrow.svg");
        check(path, GOOD).unwrap();
        for (from, to) in [
            ("0 0 360", "0 0 900"),
            ("viewBox=\"0 0 360 9\"", "width=\"360\""),
            ("<svg ", "<svg width=\"9\" "),
            ("@media (prefers-color-scheme: dark)", ""),
            (".a { fill: #000; }", ""),
            ("</style>", "</style><path fill=\"#fff\"/>"),
        ] {
            assert!(check(path, &GOOD.replace(from, to)).is_err(), "{from}");
        }
        assert!(check(Path::new("a.svg"), GOOD).is_err(), "it has no narrow form");
    }
}
