// SPDX-License-Identifier: MIT OR Apache-2.0

//! This run beside an earlier one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::table::{self, Sheet};
use super::{FORMAT, Report};

/// An earlier run's JSON.
pub(crate) struct Earlier {
    name: String,
    report: Value,
}

impl Earlier {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let name = file.display().to_string();
        let text = fs::read(file).with_context(|| format!("cannot read {name}"))?;
        let report: Value =
            serde_json::from_slice(&text).with_context(|| format!("{name} is not JSON"))?;
        ensure!(report["format"] == FORMAT, "{name} is of no run that this release knows");
        Ok(Self { name, report })
    }

    /// The ratios of both runs, of the lines that both have.
    pub(crate) fn compare(&self, report: &Report) -> Result<Sheet> {
        let report = serde_json::to_value(report)?;
        let mut rows = Vec::new();
        for case in list(&report["cases"]) {
            let keys = ["measure", "title", "size", "depth", "list", "connections"];
            let same = |other: &&Value| keys.iter().all(|key| other[key] == case[key]);
            let Some(before) = list(&self.report["cases"]).iter().find(same) else { continue };
            for subject in list(&case["subjects"]) {
                let same = |other: &&Value| other["name"] == subject["name"];
                let then = list(&before["subjects"]).iter().find(same);
                rows.extend(then.and_then(|then| row(case, subject, then)));
            }
        }
        let header = ["", "", "ratio then", "95 %", "ratio now", "95 %", "change", "certain"];
        Ok(Sheet {
            headline: format!("Compared with {}", self.name),
            header: header.map(str::to_owned).to_vec(),
            rows,
        })
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Ratios of one line, then and now. That they differ is certain where their intervals are apart.
fn row(case: &Value, now: &Value, then: &Value) -> Option<Vec<String>> {
    let numbers = |subject: &Value| {
        let number = |key: &str| subject["versus"][key].as_f64();
        Some([number("ratio")?, number("low")?, number("high")?])
    };
    let [old, old_low, old_high] = numbers(then)?;
    let [new, new_low, new_high] = numbers(now)?;
    let apart = new_low > old_high || new_high < old_low;
    let size = iwarp_kit::size::show(case["size"].as_u64()? as usize);
    Some(vec![
        format!("{} {size}", case["measure"].as_str()?),
        now["name"].as_str()?.to_owned(),
        format!("{old:.2}"),
        table::interval(old_low, old_high),
        format!("{new:.2}"),
        table::interval(new_low, new_high),
        format!("{:+.1} %", (new / old - 1.0) * 100.0),
        if apart { "yes" } else { "no" }.to_owned(),
    ])
}
