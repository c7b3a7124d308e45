// SPDX-License-Identifier: MIT OR Apache-2.0

//! A page that needs nothing else, and its pictures as files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use iwarp_kit::page::{begin, end, escape};
use iwarp_kit::size;

use super::charts::{Across, Estimate, Point, Series, bars, lines, ratios};
use super::overview::{self, Entry, Overview, Verdict};
use super::table::{self, Sheet};
use super::{CaseReport, Report, SubjectReport, look};
use crate::plan::Measure;

/// A picture, and the name of its file.
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

/// Makes a directory for pictures, which need not exist.
pub(crate) fn make_directory(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)
        .with_context(|| format!("cannot write into {}", dir.display()))
}

/// Writes the pictures, each to a file of its own, into a directory.
pub(crate) fn write_pictures(report: &Report, dir: &Path) -> Result<()> {
    for picture in pictures(report) {
        let file = dir.join(format!("{}.svg", picture.name));
        fs::write(&file, picture.svg)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The page.
pub(crate) fn page(report: &Report) -> Result<String> {
    let style = [include_str!("page.css"), &look::style()].concat();
    let mut page = begin("iwarp perf: RDMA over TCP beside raw TCP", &style);
    if let Some(warning) = &report.warning {
        writeln!(page, "<p class=\"warning\">{}</p>", escape(warning))?;
    }
    if let Some(sentence) = overview::sentence(report) {
        writeln!(page, "<p class=\"sentence\">{}</p>", escape(&sentence))?;
    }
    if let Some(overview) = Overview::of(report) {
        page.push_str(&ratios_to_tcp(&overview)?);
    }
    page.push_str("<div class=\"dim\">\n");
    for line in table::circumstances(&report.run) {
        writeln!(page, "<p>{}</p>", escape(&line))?;
    }
    writeln!(page, "<p><code>{}</code></p>\n</div>", escape(&report.run.command.join(" ")))?;
    let pictures = pictures(report);
    if !pictures.is_empty() {
        page.push_str("<h2>Pictures</h2>\n");
        page.push_str(
            "<p class=\"dim\">A colour is an operation, a dashed line has CRC, or \
             goes over TCP where others do not.</p>\n",
        );
        page.push_str("<div class=\"pictures\">\n");
        for picture in pictures {
            let (name, svg) = (escape(&picture.name), picture.svg);
            writeln!(page, "<figure id=\"{name}\">{svg}</figure>")?;
        }
        page.push_str("</div>\n");
    }
    for sheet in table::sheets(report) {
        page.push_str(&html_table(&sheet)?);
    }
    let json = escape(&serde_json::to_string_pretty(report)?);
    let summary = "<summary>Everything that was measured, round by round</summary>";
    writeln!(page, "<h2>JSON</h2><details>{summary}<pre>{json}</pre></details>")?;
    page.push_str(&end(""));
    Ok(page)
}

/// The table on top.
fn ratios_to_tcp(overview: &Overview) -> Result<String> {
    let mut html =
        "<div class=\"scroll\"><table class=\"overview\"><thead><tr><th>times raw TCP</th>"
            .to_owned();
    for operation in &overview.operations {
        write!(html, "<th>{}</th>", escape(operation))?;
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &overview.rows {
        write!(html, "<tr><td>{}</td>", escape(&row.name))?;
        for cell in &row.cells {
            html.push_str("<td>");
            for Entry { crc, ratio, verdict } in cell {
                let class = match verdict {
                    Verdict::Better => "better",
                    Verdict::Worse => "worse",
                    Verdict::Open => "open",
                };
                let label = if *crc { "<small>CRC</small> " } else { "" };
                write!(html, "<span>{label}<b class=\"{class}\">{ratio:.2}</b></span> ")?;
            }
            html.push_str("</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str(
        "</tbody></table></div>\n<p class=\"dim\">Ratios of medians: <b class=\"better\">better</b> \
         or <b class=\"worse\">worse</b> than raw TCP, or <b class=\"open\">either</b>, as their 95 % \
         intervals say.</p>\n",
    );
    Ok(html)
}

fn html_table(sheet: &Sheet) -> Result<String> {
    let mut html = format!("<h2>{}</h2>\n", escape(&sheet.headline));
    html.push_str("<div class=\"scroll\"><table><thead><tr>");
    for cell in &sheet.header {
        write!(html, "<th>{}</th>", escape(cell))?;
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &sheet.rows {
        html.push_str("<tr>");
        for cell in row {
            write!(html, "<td>{}</td>", escape(cell))?;
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    Ok(html)
}

/// All pictures of a run.
fn pictures(report: &Report) -> Vec<Picture> {
    let mut pictures = report.pictures();
    pictures.extend(over_sizes(&report.cases));
    // Pictures of a kind stand beside each other.
    pictures.extend(report.cases.iter().filter_map(beside));
    pictures.extend(report.cases.iter().filter_map(percentiles));
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

/// The distribution of the times.
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
    let title = format!("{}: share of messages within a time", table::headline(case));
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
    /// A name that tells it from other cases of its measure.
    fn place(&self) -> String {
        let what = self.subjects.iter().find(|subject| subject.versus.is_some());
        let what = what.map_or("", |subject| subject.name.split([',', ' ']).next().unwrap_or(""));
        format!("{}-{}", what.to_lowercase(), size::show(self.size).replace(' ', ""))
    }
}
