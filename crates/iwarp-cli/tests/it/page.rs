// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page of `iwarp explain --html`, as a browser draws it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{run, stderr, within};

macro_rules! capture {
    ($path:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../", $path)
    };
}

/// Captures, with the least numbers of bars and of marks that their time lines have.
const CAPTURES: [(&str, &str, u64, u64); 3] = [
    ("refused", capture!("iwarp-proto/tests/data/pcap/ref_nomarkers.pcap"), 10, 1),
    ("siw", capture!("iwarp-explain/tests/data/siw.pcap"), 20, 0),
    ("rxe", capture!("iwarp-explain/tests/data/rsockets-rxe.pcap"), 20, 0),
];

/// Behind the page: writes down how it was drawn.
const MEASURE: &str = r#"
<script>
const box = element => element.getBoundingClientRect();
const lines = [...document.querySelectorAll("svg.line")].map(line => {
    const around = box(line);
    const drawn = [...line.querySelectorAll("rect, polygon, text, line")];
    const isInside = shape => {
        const { left, right, top, bottom } = box(shape);
        return left >= around.left - 1 && right <= around.right + 1
            && top >= around.top - 1 && bottom <= around.bottom + 1;
    };
    const bars = drawn.filter(shape => shape.tagName == "rect");
    return {
        width: around.width, height: around.height,
        bars: bars.filter(bar => box(bar).width >= 0.5 && box(bar).height >= 3).length,
        colours: new Set(bars.map(bar => getComputedStyle(bar).fill)).size,
        marks: drawn.filter(shape => shape.tagName == "polygon").length,
        outside: drawn.filter(shape => !isInside(shape)).map(shape => shape.outerHTML),
    };
});
const sections = [...document.querySelectorAll("section")].map(section => box(section));
const frames = document.querySelector("details");
const folded = frames ? box(frames).height : 0;
if (frames) frames.open = true;
const measured = {
    lines, folded, unfolded: frames ? box(frames).height : 0,
    window: innerWidth, page: document.documentElement.scrollWidth,
    overlaps: sections.some((section, i) => i > 0 && section.top < sections[i - 1].bottom - 1),
    targets: [...document.querySelectorAll("a[href^='#']")]
        .every(link => document.getElementById(link.hash.slice(1))),
};
const pre = document.createElement("pre");
pre.id = "measured";
pre.textContent = JSON.stringify(measured);
document.body.append(pre);
</script>
"#;

/// Measured by the script in a window of that width.
fn measured(page: &Path, width: u32) -> Value {
    let profile = page.with_extension(format!("profile-{width}"));
    let mut browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--no-first-run", "--hide-scrollbars", "--dump-dom"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a browser: apt-get install chromium");
    let mut output = browser.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let ended = || browser.try_wait().expect("its status");
    let status = within(Duration::from_secs(120), "the browser", ended);
    let dom = reader.join().expect("it reads").expect("text");
    let written =
        dom.split_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once('<'));
    let (written, _) = written.unwrap_or_else(|| panic!("{status}: {dom}"));
    let json = written.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).expect("JSON")
}

/// A page of this capture that measures itself.
fn page(name: &str, capture: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("iwarp-page-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let page = folder.join("page.html");
    let output = run(&["explain", "--frames", "--html", page.to_str().expect("a text"), capture]);
    assert!(output.status.success(), "{}", stderr(&output));
    let html = fs::read_to_string(&page).expect("a page");
    assert!(!html.contains("<script"), "it needs none");
    let html = html.replace("</body>", &format!("{MEASURE}</body>"));
    fs::write(&page, html).expect("a page");
    page
}

#[test]
fn a_time_line_is_drawn_within_its_page() {
    for (name, capture, bars, marks) in CAPTURES {
        let page = page(name, capture);
        for width in [1200, 600] {
            let found = measured(&page, width);
            let said = format!("{name}, {width}: {found}");
            assert!(found["page"].as_f64() <= found["window"].as_f64(), "{said}");
            assert_eq!(
                (&found["overlaps"], &found["targets"]),
                (&false.into(), &true.into()),
                "{said}"
            );
            assert!(found["unfolded"].as_f64() > found["folded"].as_f64(), "{said}");
            let lines = found["lines"].as_array().expect("a list");
            assert!(!lines.is_empty(), "{said}");
            for line in lines {
                assert!(line["width"].as_f64() > Some(0.8 * f64::from(width) - 100.0), "{said}");
                assert!(line["height"].as_f64() > Some(50.0), "{said}");
                assert_eq!(line["outside"].as_array().map(Vec::len), Some(0), "{said}");
            }
            let sum = |name: &str| lines.iter().filter_map(|line| line[name].as_u64()).sum::<u64>();
            assert!(sum("bars") >= bars, "{said}");
            assert!(sum("marks") >= marks, "{said}");
            assert!(lines.iter().any(|line| line["colours"].as_u64() > Some(1)), "{said}");
        }
        fs::remove_dir_all(page.parent().expect("its folder")).expect("it goes");
    }
}
