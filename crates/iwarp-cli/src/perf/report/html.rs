//! A page that needs nothing else, and its pictures as files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::charts::{Across, Estimate, Point, Series, bars, lines, ratios};
use super::table;
use super::{CaseReport, Report, SubjectReport};
use crate::perf::plan::Measure;
use crate::size;

const STYLE: &str = "\
body{font:15px/1.45 Helvetica,Arial,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;\
color:#111;background:#fff}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child{text-align:left}\
figure{display:inline-block;margin:1em 1em 1em 0}\
pre{overflow:auto;max-height:30em;background:#f6f6f6;padding:1em}";

/// A picture, and what its file is called.
pub(crate) struct Picture {
    name: String,
    svg: String,
}

impl Picture {
    /// Bars in groups: a value for each name.
    pub(crate) fn bars(
        name: &str,
        title: &str,
        label: &str,
        names: &[&str],
        groups: &[(String, Vec<f64>)],
    ) -> Self {
        Self { name: name.to_owned(), svg: bars(title, label, names, groups) }
    }
}

/// Writes the page.
pub(crate) fn write(report: &Report, file: &Path) -> Result<()> {
    fs::write(file, page(report)?).with_context(|| format!("cannot write {}", file.display()))
}

/// Writes the pictures, each to a file of its own, into a directory that need not exist.
pub(crate) fn write_pictures(report: &Report, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for picture in pictures(report) {
        let file = dir.join(format!("{}.svg", picture.name));
        fs::write(&file, picture.svg)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn page(report: &Report) -> Result<String> {
    let mut page = String::new();
    let title = "iwarp perf: RDMA over TCP beside raw TCP";
    write!(
        page,
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
    )?;
    for line in table::circumstances(&report.run) {
        writeln!(page, "<p>{}</p>", escape(&line))?;
    }
    writeln!(page, "<p><code>{}</code></p>", escape(&report.run.command.join(" ")))?;
    for picture in pictures(report) {
        writeln!(page, "<figure id='{}'>{}</figure>", escape(&picture.name), picture.svg)?;
    }
    for sheet in table::sheets(report) {
        writeln!(page, "<h2>{}</h2>\n<table><tr>", escape(&sheet.headline))?;
        for cell in &sheet.header {
            write!(page, "<th>{}</th>", escape(cell))?;
        }
        page.push_str("</tr>\n");
        for row in &sheet.rows {
            page.push_str("<tr>");
            for cell in row {
                write!(page, "<td>{}</td>", escape(cell))?;
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table>\n");
    }
    let json = escape(&serde_json::to_string_pretty(report)?);
    writeln!(
        page,
        "<h2>Everything, as JSON</h2><details><pre>{json}</pre></details></body></html>"
    )?;
    Ok(page)
}

/// A text as it stands in HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// All pictures of a run.
fn pictures(report: &Report) -> Vec<Picture> {
    let mut pictures = report.pictures();
    pictures.extend(over_sizes(&report.cases));
    for case in &report.cases {
        pictures.extend(beside(case));
        pictures.extend(percentiles(case));
    }
    pictures
}

/// Values over sizes, where there are several.
fn over_sizes(cases: &[CaseReport]) -> Vec<Picture> {
    let measures = [Measure::Bandwidth, Measure::Latency, Measure::RoundTrip, Measure::Rate];
    let picture = |measure: Measure| {
        let cases: Vec<&CaseReport> = cases.iter().filter(|case| case.measure == measure).collect();
        let mut sizes: Vec<usize> = cases.iter().map(|case| case.size).collect();
        sizes.dedup();
        if sizes.len() < 2 {
            return None;
        }
        let (title, label, scale) = axis(measure);
        let mut names: Vec<&str> = Vec::new();
        for subject in cases.iter().flat_map(|case| &case.subjects) {
            if !names.contains(&subject.name.as_str()) {
                names.push(&subject.name);
            }
        }
        let point = |case: &&CaseReport, name: &str| {
            let subject = case.subjects.iter().find(|subject| subject.name == name)?;
            let (summary, x) = (subject.summary, case.size as f64);
            let [y, low, high] = [summary.median, summary.q1, summary.q3].map(|v| v * scale);
            Some(Point { x, y, low, high })
        };
        let series: Vec<Series> = names
            .iter()
            .map(|name| Series {
                name: (*name).to_owned(),
                points: cases.iter().filter_map(|case| point(case, name)).collect(),
            })
            .collect();
        let name = format!("{}-over-size", word(measure));
        Some(Picture { name, svg: lines(title, label, &Across::Sizes, &series) })
    };
    measures.into_iter().filter_map(picture).collect()
}

/// The ratios to raw TCP.
fn beside(case: &CaseReport) -> Option<Picture> {
    let estimate = |subject: &SubjectReport| {
        let ratio = subject.versus.as_ref()?.ratio;
        let (value, low, high) = (ratio.medians, ratio.low, ratio.high);
        Some(Estimate { name: subject.name.clone(), value, low, high })
    };
    let estimates: Vec<Estimate> = case.subjects.iter().filter_map(estimate).collect();
    if estimates.is_empty() {
        return None;
    }
    let better = match case.measure {
        Measure::Latency | Measure::RoundTrip => "less is better",
        _ => "more is better",
    };
    let label = format!("ratio of medians, 95 % interval ({better})");
    let svg = ratios(&table::headline(case), &label, &estimates);
    Some(Picture { name: format!("{}-ratio-{}", word(case.measure), case.place()), svg })
}

/// How often how long.
fn percentiles(case: &CaseReport) -> Option<Picture> {
    let series = |subject: &SubjectReport| {
        let p = subject.percentiles?;
        let values = [p.p50, p.p90, p.p99, p.p999, p.max].map(|seconds| seconds * 1e6);
        let point = |(x, y): (usize, f64)| Point { x: x as f64, y, low: y, high: y };
        let points = values.into_iter().enumerate().map(point).collect();
        Some(Series { name: subject.name.clone(), points })
    };
    let series: Vec<Series> = case.subjects.iter().filter_map(series).collect();
    if series.is_empty() {
        return None;
    }
    let names = ["50 %", "90 %", "99 %", "99.9 %", "all"].map(str::to_owned).to_vec();
    let title = format!("{}: so many messages within", table::headline(case));
    let svg = lines(&title, "µs", &Across::Names(names), &series);
    Some(Picture { name: format!("{}-percentiles-{}", word(case.measure), case.place()), svg })
}

/// Title, label and factor of an axis.
fn axis(measure: Measure) -> (&'static str, &'static str, f64) {
    match measure {
        Measure::Bandwidth => ("Bandwidth", "GB/s", 1e-9),
        Measure::Latency => ("Half round trip", "µs", 1e6),
        Measure::RoundTrip => ("Whole round trip", "µs", 1e6),
        Measure::Rate => ("Messages", "million/s", 1e-6),
        Measure::Connect => ("Connections", "1000/s", 1e-3),
    }
}

fn word(measure: Measure) -> &'static str {
    match measure {
        Measure::Bandwidth => "bandwidth",
        Measure::Latency => "latency",
        Measure::RoundTrip => "round-trip",
        Measure::Rate => "rate",
        Measure::Connect => "connect",
    }
}

impl CaseReport {
    /// Tells it from others of the same measure.
    fn place(&self) -> String {
        let what = self.subjects.iter().find(|subject| subject.versus.is_some());
        let what = what.map_or("", |subject| subject.name.split([',', ' ']).next().unwrap_or(""));
        format!("{}-{}", what.to_lowercase(), size::show(self.size).replace(' ', ""))
    }
}
