// SPDX-License-Identifier: MIT OR Apache-2.0

//! A report as text, for people.

use std::fmt::{self, Write as _};

use crate::findings::{Finding, Severity};
use crate::report::{Connection, Fact, Report};
use crate::words::{bytes, count, grouped, time};

/// The report as text of lines that end with a line feed.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // A string takes all that is written to it.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> fmt::Result {
    let took = time(report.duration);
    writeln!(
        out,
        "{} in {took}, {} of iWARP or RoCE v2",
        count(report.packets, "packet"),
        count(report.connections.len() as u64, "connection")
    )?;
    for line in remarks(report) {
        writeln!(out, "  {line}")?;
    }
    for connection in &report.connections {
        writeln!(out)?;
        write_connection(out, connection)?;
    }
    // A single one ends with its own.
    if report.connections.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\nVerdicts")?;
    for connection in &report.connections {
        writeln!(out, "  {}  {}", connection.number, connection.verdict.text)?;
    }
    Ok(())
}

/// Lines about the capture as a whole.
pub fn remarks(report: &Report) -> Vec<String> {
    let other = &report.other;
    let mut lines = Vec::new();
    lines.extend(report.damage.clone());
    if report.cut_packets > 0 {
        let cut = count(report.cut_packets, "packet");
        lines.push(format!("A snap length has cut {cut}: CRCs of these stay unverified."));
    }
    if report.connections.is_empty() {
        lines.push(
            "No MPA start-up and no FPDUs over TCP, and no packets to UDP port 4791. A capture of a \
             card at its own host lacks them unless the driver mirrors them (for mlx5: tcpdump -i \
             mlx5_0); else mirror the port at the switch."
                .to_owned(),
        );
    }
    const NAMED: usize = 5;
    let unknown = &other.tcp_unknown;
    if let Some(more) = unknown.len().checked_sub(NAMED).filter(|more| *more > 0) {
        let more = count(more as u64, "TCP connection");
        lines.push(format!("{more} besides those below could not be told from other protocols."));
    }
    for ends in unknown.iter().take(NAMED) {
        lines.push(format!(
            "TCP between {ends} began before the capture, or a snap length has cut its first bytes; \
             no FPDUs could be made out in it, so whether it is iWARP cannot be told."
        ));
    }
    let counts = [
        (other.tcp_connections, "TCP connection", " without iWARP"),
        (other.doubled, "packet", " captured twice and taken once"),
        (other.fragments, "IP fragment", " not explained"),
        (other.roce_v1, "packet", " of RoCE v1, which is not explained"),
        (other.unknown_links, "packet", " of an unknown link layer"),
        (other.cm_messages, "CM message", " outside of a set-up that was seen"),
        (other.strange_datagrams, "datagram", " to port 4791 left unexplained"),
        (other.packets, "packet", " of other protocols"),
    ];
    for (number, noun, rest) in counts {
        if number > 0 {
            lines.push(format!("{}{rest}.", count(number, noun)));
        }
    }
    lines
}

fn write_connection(out: &mut String, connection: &Connection) -> fmt::Result {
    let [one, other] = &connection.ends;
    writeln!(
        out,
        "{}  {}: {} {}, {} {}",
        connection.number, connection.protocol, one.role, one.address, other.role, other.address
    )?;
    writeln!(
        out,
        "   {} from packet {} on, {} to {}",
        count(connection.packets, "packet"),
        connection.first_packet,
        time(connection.begin),
        time(connection.end)
    )?;
    list(out, "Terms", &connection.terms)?;
    if !connection.operations.is_empty() {
        writeln!(out, "   Operations")?;
    }
    for operation in &connection.operations {
        let role = connection.ends[operation.by].role;
        writeln!(out, "     {role}: {}", self::operation(operation))?;
    }
    if !connection.times.is_empty() {
        writeln!(out, "   Times (shortest, median, longest)")?;
    }
    for times in &connection.times {
        let (least, middle, most) = (time(times.shortest), time(times.median), time(times.longest));
        match times.count {
            1 => writeln!(out, "     {}: {middle}", times.what)?,
            number => writeln!(
                out,
                "     {}: {least}, {middle}, {most} ({} of them)",
                times.what,
                grouped(number)
            )?,
        }
    }
    let transport = if connection.protocol == "iWARP" { "TCP" } else { "Packets" };
    list(out, transport, &connection.transport)?;
    if !connection.findings.is_empty() {
        writeln!(out, "   Findings")?;
    }
    for finding in &connection.findings {
        write_finding(out, finding)?;
    }
    if !connection.frames.is_empty() {
        writeln!(out, "   Frames")?;
    }
    for frame in &connection.frames {
        let role = connection.ends[frame.by].role;
        writeln!(out, "     {:>6}  {:>10}  {role}: {}", frame.packet, time(frame.at), frame.text)?;
    }
    writeln!(out, "   Verdict: {}", connection.verdict.text)
}

/// An operation in words.
pub fn operation(operation: &crate::Operation) -> String {
    let sizes = match (operation.smallest, operation.largest) {
        (0, 0) => String::new(),
        (least, most) if least == most => format!(" of {}", bytes(least)),
        (least, most) => {
            format!(" of {} to {}, {} in all", grouped(least), bytes(most), bytes(operation.bytes))
        }
    };
    let frames = match operation.frames {
        frames if frames == operation.messages => String::new(),
        frames => format!(", in {}", count(frames, "frame")),
    };
    format!("{} x {}{sizes}{frames}", grouped(operation.messages), operation.kind)
}

fn list(out: &mut String, title: &str, facts: &[Fact]) -> fmt::Result {
    let texts: Vec<&str> =
        facts.iter().map(|fact| fact.text.as_str()).filter(|text| !text.is_empty()).collect();
    if texts.is_empty() {
        return Ok(());
    }
    writeln!(out, "   {title}: {}", texts.join("; "))
}

fn write_finding(out: &mut String, finding: &Finding) -> fmt::Result {
    let mark = match finding.severity {
        Severity::Fault => "FAULT",
        Severity::Trouble => "trouble",
        Severity::Remark => "remark",
    };
    let (at, packet) = (time(finding.at), finding.packet);
    writeln!(out, "     {mark} at {at}, packet {packet}: {}", finding.text)?;
    if let Some(advice) = &finding.advice {
        writeln!(out, "       {advice}")?;
    }
    if finding.repeated > 0 {
        writeln!(out, "       {} more like it.", grouped(finding.repeated))?;
    }
    Ok(())
}
