// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp devinfo`: what `ibv_devinfo` shows of a device.

mod fact;
mod facts;

use anyhow::Result;
use comfy_table::{Table, presets};
use iwarp::verbs::Gid;
use iwarp::{Device, Options};
use serde_json::{Map, Value, json};

use crate::descriptors::raise_descriptor_limit;
use fact::Fact;

/// Show the RDMA devices of this machine, as ibv_devinfo does.
///
/// There is one device, with one port, unless IWARP_DEVICES names others. It answers on all
/// addresses of the machine, or of the interfaces that IWARP_DEVICES gives to its ports, which are
/// the entries of their GID tables. It needs no set-up.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Examples:
  iwarp devinfo         the device and its port
  iwarp devinfo -v      with all limits and the GID table
  iwarp devinfo --json  all of it for programs: a list of devices")]
pub(crate) struct Args {
    /// Show limits and the GID table too
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON, with everything that -v shows
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // As programs that `iwarp run` starts see it.
    raise_descriptor_limit();
    let first = Device::open_with(Options::for_any_program())?;
    let places = 0..first.options().visible_devices().len();
    let devices: Vec<_> =
        places.map(|place| first.named_sibling(place)).collect::<Result<_, _>>()?;
    if args.json {
        let all: Vec<Value> = devices.iter().map(as_json).collect::<Result<_>>()?;
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    devices.iter().try_for_each(|device| show(device, args.verbose))
}

/// The entries of a port's GID table: those that programs find by looking through it, which leaves
/// out loopback addresses where there are others, and the rest.
fn gids(device: &Device, port: u8) -> Result<(Vec<Gid>, Vec<Gid>)> {
    let all = device.port_gid_table(port)?.to_vec();
    let (loopback, others): (Vec<Gid>, Vec<Gid>) =
        all.into_iter().partition(|gid| gid.addr.is_loopback());
    Ok(if others.is_empty() { (loopback, others) } else { (others, loopback) })
}

fn show(device: &Device, verbose: bool) -> Result<()> {
    println!("hca_id: {}", device.name());
    print(4, verbose, &facts::of_device(device));
    (1..=device.attributes().phys_port_cnt).try_for_each(|port| show_port(device, port, verbose))
}

fn show_port(device: &Device, number: u8, verbose: bool) -> Result<()> {
    let (listed, hidden) = gids(device, number)?;
    println!("        port:   {number}");
    let mut port = facts::of_port(device, number, &listed)?;
    let kind = facts::gid_type(device);
    let entry = |gid: &Gid, note: &str| {
        let shown = format!("{}, {kind} ({}{note})", facts::text(gid), gid.interface);
        Fact::new(format!("GID[{:3}]", gid.index), shown, Value::Null).detail()
    };
    port.extend(listed.iter().map(|gid| entry(gid, "")));
    port.extend(hidden.iter().map(|gid| entry(gid, "; hidden from programs")));
    print(12, verbose, &port);
    Ok(())
}

fn print(indent: usize, verbose: bool, facts: &[Fact]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for fact in facts.iter().filter(|fact| verbose || !fact.is_detail) {
        table.add_row([format!("{}:", fact.name), fact.shown.clone()]);
    }
    for line in table.lines() {
        // The table has a space of its own before each line.
        println!("{:1$}{2}", "", indent - 1, line.trim_end());
    }
}

fn as_json(device: &Device) -> Result<Value> {
    let ports = 1..=device.attributes().phys_port_cnt;
    let ports: Vec<Value> = ports.map(|port| port_as_json(device, port)).collect::<Result<_>>()?;
    let mut all = Map::from_iter([("hca_id".to_owned(), json!(device.name()))]);
    all.extend(facts::of_device(device).into_iter().map(Fact::into_json));
    all.insert("ports".to_owned(), json!(ports));
    Ok(all.into())
}

fn port_as_json(device: &Device, number: u8) -> Result<Value> {
    let (listed, hidden) = gids(device, number)?;
    let kind = facts::gid_type(device);
    let entry = |gid: &Gid, listed: bool| {
        json!({
            "index": gid.index,
            "gid": facts::text(gid),
            "type": kind,
            "interface": gid.interface,
            "listed": listed,
        })
    };
    let mut table: Vec<Value> = listed.iter().map(|gid| entry(gid, true)).collect();
    table.extend(hidden.iter().map(|gid| entry(gid, false)));
    let mut port = Map::from_iter([("port".to_owned(), json!(number))]);
    port.extend(facts::of_port(device, number, &listed)?.into_iter().map(Fact::into_json));
    port.insert("gids".to_owned(), table.into());
    Ok(port.into())
}
