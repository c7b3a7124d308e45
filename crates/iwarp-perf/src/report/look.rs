// SPDX-License-Identifier: MIT OR Apache-2.0

//! The look of a line: alike in every picture, with any other lines in it.

use plotters::style::RGBColor;

/// Okabe and Ito's palette without its yellow, readable on white and distinct in grey; on a page,
/// the variable that says the colour in the light and in the dark.
const HUES: [(&str, RGBColor, &str); 7] = [
    ("TCP", RGBColor(0x00, 0x00, 0x00), "--ink"),
    ("Write", RGBColor(0x00, 0x72, 0xb2), "--blue"),
    ("Send", RGBColor(0x00, 0x9e, 0x73), "--green"),
    ("Read", RGBColor(0xd5, 0x5e, 0x00), "--red"),
    ("FetchAdd", RGBColor(0xcc, 0x79, 0xa7), "--violet"),
    ("CompareSwap", RGBColor(0xe6, 0x9f, 0x00), "--gold"),
    // Connections, clients: what is no operation.
    ("", RGBColor(0x56, 0xb4, 0xe9), "--sky"),
];
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(super) const GREY: RGBColor = RGBColor(0x88, 0x88, 0x88);
pub(super) const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Colour, stroke and mark of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    /// With CRC, or over TCP where other ways are beside it.
    pub(super) dashed: bool,
    pub(super) mark: Mark,
}

/// By the way in which the programs wait, another way of raw TCP, or the way within the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Disc,
    Square,
    Triangle,
    Ring,
}

impl Look {
    /// Of the line with this name: the colour is that of its operation.
    pub(super) fn of(name: &str) -> Self {
        let subject = name.split([',', ' ']).next().unwrap_or_default();
        let hue = HUES.iter().find(|(hue, ..)| *hue == subject).unwrap_or(&HUES[HUES.len() - 1]);
        let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let mark = if says(&["memory", "spin"]) {
            Mark::Square
        } else if says(&["events", "blocking", "end awaited", "a write"]) {
            Mark::Triangle
        } else if says(&[
            "poll(2)",
            "server to client",
            "markers",
            "requests",
            "rings",
            "process_vm",
        ]) {
            Mark::Ring
        } else {
            Mark::Disc
        };
        Self { colour: hue.1, dashed: says(&[", CRC", ", over TCP"]), mark }
    }
}

/// Has pictures on a page take the page's colours, whichever these are.
pub(super) fn style() -> String {
    let others = [(PAPER, "--paper"), (GREY, "--dim"), (GRID, "--line")];
    let all = HUES.iter().map(|&(_, colour, variable)| (colour, variable)).chain(others);
    let rule = |(RGBColor(r, g, b), variable): (RGBColor, &str)| {
        ["fill", "stroke"]
            .map(|what| {
                format!("svg [{what}=\"#{r:02X}{g:02X}{b:02X}\"]{{{what}:var({variable})}}\n")
            })
            .concat()
    };
    all.map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::{Look, Mark};

    #[test]
    fn a_subject_has_one_colour() {
        let write = Look::of("Write");
        for name in ["Write, CRC", "Write, spins on memory", "Write, poll(2), CRC, markers"] {
            assert_eq!(Look::of(name).colour, write.colour, "{name}");
        }
        for name in ["TCP", "TCP, blocking", "Send", "Read", "FetchAdd", "4 clients"] {
            assert_ne!(Look::of(name).colour, write.colour, "{name}");
        }
        assert!(Look::of("Write, CRC").dashed && !write.dashed);
        assert_eq!(Look::of("Send, events").mark, Mark::Triangle);
        let [tcp, rings, auto] = ["over TCP", "by rings", "auto"].map(|way| {
            let look = Look::of(&format!("Write, {way}"));
            (look.dashed, look.mark)
        });
        assert!(tcp != rings && rings != auto && auto != tcp);
    }
}
