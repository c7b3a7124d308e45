// SPDX-License-Identifier: MIT OR Apache-2.0

//! A report as a page: for each connection the verdict, a time line, tables and findings.

use std::fmt::Write as _;
use std::time::Duration;

use iwarp_explain::{Connection, Finding, Outcome, Report, Severity, Span, SpanKind, text};
use iwarp_kit::page::{begin, end, escape};

/// The size of a time line, in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 150.0;
/// The room at the left for the names of the ends.
const LEFT: f64 = 80.0;

/// The whole page.
pub(super) fn page(report: &Report, title: &str) -> String {
    let mut page = begin(title, include_str!("page.css"));
    let count = report.connections.len();
    let noun = if count == 1 { "connection" } else { "connections" };
    write(&mut page, &format!("<p>{} packets, {count} {noun}.</p>", report.packets));
    for remark in text::remarks(report) {
        write(&mut page, &format!("<p class=\"dim\">{}</p>", escape(&remark)));
    }
    if count > 1 {
        contents(&mut page, report);
    }
    for connection in &report.connections {
        self::connection(&mut page, connection);
    }
    page + &end("")
}

fn contents(page: &mut String, report: &Report) {
    write(page, "<table>");
    for connection in &report.connections {
        let number = connection.number;
        write(
            page,
            &format!(
                "<tr><td class=\"number\"><a href=\"#c{number}\">{number}</a></td><td>{}</td><td>{}\
                 </td></tr>",
                escape(connection.protocol),
                escape(&connection.verdict.text)
            ),
        );
    }
    write(page, "</table>");
}

fn connection(page: &mut String, connection: &Connection) {
    let [one, other] = &connection.ends;
    let title = format!(
        "{}  {}: {} {}, {} {}",
        connection.number, connection.protocol, one.role, one.address, other.role, other.address
    );
    write(page, &format!("<section id=\"c{}\">\n<h2>{}</h2>", connection.number, escape(&title)));
    let outcome = match connection.verdict.outcome {
        Outcome::Fine => "fine",
        Outcome::Troubled => "troubled",
        Outcome::Wrong => "wrong",
        _ => "unknown",
    };
    let verdict = escape(&connection.verdict.text);
    write(page, &format!("<p class=\"verdict {outcome}\">{verdict}</p>"));
    time_line(page, connection);
    let facts = connection.terms.iter().chain(&connection.transport);
    let facts: Vec<String> =
        facts.filter(|fact| !fact.text.is_empty()).map(|fact| escape(&fact.text)).collect();
    write(page, &format!("<p>{}.</p>", facts.join("; ")));
    operations(page, connection);
    times(page, connection);
    for finding in &connection.findings {
        self::finding(page, finding);
    }
    if !connection.frames.is_empty() {
        write(page, "<details><summary>Frames</summary><pre>");
        for frame in &connection.frames {
            let role = connection.ends[frame.by].role;
            let line = format!("{:>6}  {:>12}  {role}: {}", frame.packet, at(frame.at), frame.text);
            write(page, &escape(&line));
        }
        write(page, "</pre></details>");
    }
    write(page, "</section>");
}

fn operations(page: &mut String, connection: &Connection) {
    if connection.operations.is_empty() {
        return;
    }
    write(page, "<table><tr><th>From</th><th>Operations</th></tr>");
    for operation in &connection.operations {
        let role = connection.ends[operation.by].role;
        let line = escape(&text::operation(operation));
        write(page, &format!("<tr><td>{role}</td><td>{line}</td></tr>"));
    }
    write(page, "</table>");
}

fn times(page: &mut String, connection: &Connection) {
    if connection.times.is_empty() {
        return;
    }
    write(
        page,
        "<table><tr><th>Time</th><th>Count</th><th>Shortest</th><th>Median</th><th>Longest</th></tr>",
    );
    for times in &connection.times {
        let number = |text: &str| format!("<td class=\"number\">{}</td>", escape(text));
        let cells: String =
            [times.count.to_string(), at(times.shortest), at(times.median), at(times.longest)]
                .iter()
                .map(|cell| number(cell))
                .collect();
        write(page, &format!("<tr><td>{}</td>{cells}</tr>", escape(&times.what)));
    }
    write(page, "</table>");
}

fn finding(page: &mut String, finding: &Finding) {
    let (class, name) = match finding.severity {
        Severity::Fault => ("fault", "Fault"),
        Severity::Trouble => ("trouble", "Trouble"),
        _ => ("remark", "Remark"),
    };
    let (when, packet) = (at(finding.at), finding.packet);
    let mut html = format!(
        "<div class=\"finding {class}\"><b>{name}</b> at {when}, packet {packet}: {}",
        escape(&finding.text)
    );
    if let Some(advice) = &finding.advice {
        html.push_str(&format!("<br><small>{}</small>", escape(advice)));
    }
    if finding.repeated > 0 {
        html.push_str(&format!("<br><small>{} more like it.</small>", finding.repeated));
    }
    write(page, &(html + "</div>"));
}

/// The picture: a lane for each end, with time from left to right.
fn time_line(page: &mut String, connection: &Connection) {
    let begin = connection.begin;
    let whole = connection.end.saturating_sub(begin).as_secs_f64().max(1e-9);
    let place = |moment: Duration| {
        LEFT + (WIDTH - LEFT - 10.0) * (moment.saturating_sub(begin).as_secs_f64() / whole).min(1.0)
    };
    write(
        page,
        &format!(
            "<svg class=\"line\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"time line\">"
        ),
    );
    for (side, end) in connection.ends.iter().enumerate() {
        let y = lane(side) + 15.0;
        write(
            page,
            &format!(
                "<line class=\"lane\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text x=\"4\" y=\"{}\">{}</text>",
                WIDTH - 10.0,
                y + 4.0,
                escape(end.role)
            ),
        );
    }
    // Waits lie behind everything else.
    let stalls = |span: &&Span| span.kind == SpanKind::Stall;
    for span in connection.spans.iter().filter(stalls) {
        bar(page, span, &place);
    }
    for span in connection.spans.iter().filter(|span| !stalls(span)) {
        bar(page, span, &place);
    }
    for finding in &connection.findings {
        let class = match finding.severity {
            Severity::Fault => "fault",
            Severity::Trouble => "trouble",
            _ => continue,
        };
        let (x, text) = (place(finding.at), escape(&finding.text));
        write(
            page,
            &format!(
                "<polygon class=\"{class}\" points=\"{:.1},2 {:.1},2 {x:.1},13\"><title>{text}</title>\
                 </polygon>",
                x - 5.0,
                x + 5.0
            ),
        );
    }
    for tick in 0..=4 {
        let part = f64::from(tick) / 4.0;
        let x = LEFT + (WIDTH - LEFT - 10.0) * part;
        let moment = begin + Duration::from_secs_f64(whole * part);
        let anchor = if tick == 4 { "end" } else { "start" };
        write(
            page,
            &format!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                HEIGHT - 4.0,
                at(moment)
            ),
        );
    }
    write(page, "</svg>");
    if connection.spans_left_out > 0 {
        let more = connection.spans_left_out;
        write(
            page,
            &format!("<p class=\"dim\">{more} later operations are not in the picture.</p>"),
        );
    }
}

const fn lane(side: usize) -> f64 {
    if side == 0 { 25.0 } else { 80.0 }
}

fn bar(page: &mut String, span: &Span, place: &impl Fn(Duration) -> f64) {
    let (class, height) = match span.kind {
        SpanKind::Message => ("message", 22.0),
        SpanKind::Read => ("read", 14.0),
        SpanKind::Refusal => ("refusal", 30.0),
        SpanKind::Stall => ("stall", 40.0),
        _ => ("control", 26.0),
    };
    let (from, to) = (place(span.from), place(span.to));
    let width = (to - from).max(1.5);
    let y = lane(span.by) + 15.0 - height / 2.0;
    let (when, text) = (at(span.from), escape(&span.text));
    write(
        page,
        &format!(
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{when}: {text}</title></rect>"
        ),
    );
}

/// A time with the unit that suits it.
fn at(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..0.001 => format!("{:.1} µs", seconds * 1e6),
        0.001..1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.3} s"),
    }
}

fn write(html: &mut String, line: &str) {
    // A string takes all that is written to it.
    let _ = writeln!(html, "{line}");
}
