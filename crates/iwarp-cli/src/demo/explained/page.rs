// SPDX-License-Identifier: MIT OR Apache-2.0

//! The story as a page: two columns, client and server, and arrows between them that open.

use std::fmt::Write as _;

use iwarp_kit::page::{begin, end, escape};

use super::fields::{Field, Layer};
use super::frames::Frame;
use super::story::{Chapter, Happened, Part, Side, Story, Thing};
use super::terminal::time;
use super::{Deed, deeds};

/// Bytes of a frame that are shown.
const SHOWN: usize = 160;

/// The whole page. `about` says under what circumstances all this happened.
pub(crate) fn page(story: &Story, title: &str, about: &str) -> String {
    let mut page = begin(title, include_str!("page.css"));
    let [client, server] = story.processes;
    let lines = [
        "Two processes on one machine, from the top down: verbs calls (●), completions, and \
         between them every frame that passed, as the library recorded it on both sides of the \
         TCP connection. Open a line for its fields; point at a field to see its bytes.",
        about,
    ];
    for line in lines {
        write(&mut page, &format!("<p class=\"lead\">{}</p>", escape(line)));
    }
    write(
        &mut page,
        "<p class=\"tools\"><button id=\"open\" type=\"button\">Open all</button>\
         <button id=\"close\" type=\"button\">Close all</button></p>",
    );
    write(
        &mut page,
        &format!(
            "<div class=\"ends\"><span class=\"left\">client <small>process {client}</small></span>\
             <span class=\"right\">server <small>process {server}</small></span></div>"
        ),
    );
    for chapter in &story.chapters {
        page.push_str(&self::chapter(chapter));
    }
    page.push_str(&end(include_str!("page.js")));
    page
}

fn chapter(chapter: &Chapter) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape(&chapter.title));
    write(&mut html, &format!("<p class=\"lead\">{}</p>", escape(&chapter.lead)));
    for part in &chapter.parts {
        match &part.aside {
            None => part.happened.iter().for_each(|one| html.push_str(&happened(one))),
            Some(why) => html.push_str(&aside(why, part)),
        }
    }
    for outcome in &chapter.outcomes {
        write(&mut html, &format!("<p class=\"outcome\">{}</p>", escape(outcome)));
    }
    html.push_str("</section>\n");
    html
}

fn aside(why: &str, part: &Part) -> String {
    let all: String = part.happened.iter().map(happened).collect();
    let why = escape(why);
    format!("<details class=\"aside\"><summary><span>{why}</span></summary>\n{all}</details>\n")
}

fn happened(happened: &Happened) -> String {
    let (at, side) = (happened.at, happened.side);
    match &happened.what {
        Thing::Deed(deed) => row(at, side, "deed", &said(side, deed), &deed_fields(deed)),
        Thing::Frame(frame, took) => {
            let bytes = deeds::bytes(frame.bytes.len() as u64);
            let came = took.map_or("not seen to arrive".to_owned(), |took| {
                format!("arrived after {}", time(took))
            });
            let inside = frame_fields(frame, &format!("{bytes}, {came}."));
            row(at, side, "frame", &wire(side, &frame.name, &bytes), &inside)
        }
        Thing::End => {
            let note = "<p class=\"note\">This side sends no more: the end of its TCP stream \
                        (FIN).</p>";
            row(at, side, "frame", &wire(side, "end of stream", "TCP FIN"), note)
        }
    }
}

/// A line that opens.
fn row(at: u64, side: Side, class: &str, cells: &str, inside: &str) -> String {
    format!(
        "<details class=\"row {class} {}\"><summary><span class=\"time\">{}</span>{cells}\
         </summary><div class=\"inside\">{inside}</div></details>\n",
        side.name(),
        time(at)
    )
}

/// The three columns of a verbs call.
fn said(side: Side, deed: &Deed) -> String {
    let text = format!("<b>{}</b><small>{}</small>", escape(&deed.verb), escape(&deed.about));
    let (left, right) = match side {
        Side::Client => (text, String::new()),
        Side::Server => (String::new(), text),
    };
    columns(&left, "", &right)
}

/// The three columns of a frame.
fn wire(from: Side, name: &str, about: &str) -> String {
    // The picture has no size of its own: the heads are polygons beside a line in per cent.
    let (tail, head, points) = match from {
        Side::Client => ("0", "100%", "-9,-5 0,0 -9,5"),
        Side::Server => ("100%", "0", "9,-5 0,0 9,5"),
    };
    let arrow = format!(
        "<svg aria-hidden=\"true\"><line x1=\"{tail}\" x2=\"{head}\" y1=\"7\" y2=\"7\"/>\
         <svg x=\"{head}\" y=\"7\" overflow=\"visible\"><polygon points=\"{points}\"/></svg></svg>"
    );
    let text = format!("<b>{}</b><small>{}</small>{arrow}", escape(name), escape(about));
    columns("", &text, "")
}

fn columns(left: &str, wire: &str, right: &str) -> String {
    format!(
        "<span class=\"left\">{left}</span><span class=\"wire\">{wire}</span>\
         <span class=\"right\">{right}</span>"
    )
}

fn deed_fields(deed: &Deed) -> String {
    let mut html = "<dl>".to_owned();
    let in_c = ("in C".to_owned(), deed.in_c.clone());
    for (name, value) in std::iter::once(&in_c).chain(&deed.fields) {
        write(&mut html, &format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
    }
    html + "</dl>"
}

fn frame_fields(frame: &Frame, about: &str) -> String {
    let note = frame.note.as_deref().map(|note| format!("{note} ")).unwrap_or_default();
    let mut html = format!("<p class=\"note\">{}{}</p>", escape(&note), escape(about));
    html.push_str("<div class=\"layers\">");
    for layer in Layer::ALL {
        let fields: Vec<&Field> =
            frame.fields.iter().filter(|field| field.layer == layer).collect();
        if fields.is_empty() {
            continue;
        }
        write(&mut html, &format!("<div class=\"{}\"><h3>{}</h3><dl>", class(layer), layer.name()));
        for field in fields {
            let place: Vec<String> =
                field.place.iter().map(|span| format!("{}-{}", span.start, span.end - 1)).collect();
            let (name, value) = (escape(field.name), escape(&field.value));
            let place = place.join(" ");
            write(&mut html, &format!("<dt>{name}</dt><dd data-bytes=\"{place}\">{value}</dd>"));
        }
        html.push_str("</dl></div>");
    }
    html.push_str("</div><div class=\"bytes\">");
    for (at, byte) in frame.bytes.iter().enumerate().take(SHOWN) {
        let owner = frame.fields.iter().find(|f| f.place.iter().any(|span| span.contains(&at)));
        let class = owner.map_or("none", |field| class(field.layer));
        html.push_str(&format!("<i class=\"{class}\" data-at=\"{at}\">{byte:02x}</i>"));
    }
    if let Some(more) = frame.bytes.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let more = deeds::bytes(more as u64);
        html.push_str(&format!("<i class=\"rest\">and {more} more</i>"));
    }
    html + "</div>"
}

const fn class(layer: Layer) -> &'static str {
    match layer {
        Layer::Mpa => "mpa",
        Layer::Ddp => "ddp",
        Layer::Rdmap => "rdmap",
        Layer::Payload => "payload-layer",
    }
}

fn write(html: &mut String, line: &str) {
    // A string takes all that is written to it.
    let _ = writeln!(html, "{line}");
}
