//! `iwarp devinfo`: what `ibv_devinfo` shows of a device.

use std::net::Ipv6Addr;

use anyhow::Result;
use comfy_table::{Table, presets};
use iwarp::{Device, Options, Personality};
use iwarp_os::guid;

/// Show the RDMA device of this machine: what ibv_devinfo shows.
///
/// There is one device, with one port, unless IWARP_DEVICES names others. It answers on all
/// addresses of the machine, which are the entries of its GID table. It needs nothing to be set up.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Examples:
  iwarp devinfo         the device and its port
  iwarp devinfo -v      with all limits and the GID table")]
pub(crate) struct Args {
    /// Show limits and the GID table too
    #[arg(short)]
    verbose: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // As programs see it.
    let first = Device::open_with(Options::for_any_program())?;
    for place in 0..first.options().visible_devices().len() {
        show(&first.named_sibling(place)?, args)?;
    }
    Ok(())
}

fn show(device: &Device, args: &Args) -> Result<()> {
    let gids = device.gids()?;

    println!("hca_id: {}", device.name());
    let mut about = vec![
        row("transport", transport(device.personality())),
        row("fw_ver", device.attributes().fw_ver),
        row("node_guid", &guid::in_groups(&device.node_guid().to_be_bytes())),
        row("sys_image_guid", &guid::in_groups(&device.system_image_guid().to_be_bytes())),
        row("vendor_id", "0x000000"),
        row("vendor_part_id", "0"),
        row("hw_ver", "0x0"),
        row("phys_port_cnt", &device.attributes().phys_port_cnt.to_string()),
    ];
    if args.verbose {
        about.extend(limits(device));
    }
    print(4, &about);

    let mtu = gids.first().and_then(|gid| gid.mtu).unwrap_or(1500);
    println!("        port:   1");
    let mut port = vec![
        row("state", "PORT_ACTIVE (4)"),
        row("max_mtu", "4096 (5)"),
        row("active_mtu", active_mtu(mtu)),
        row("sm_lid", "0"),
        row("port_lid", &device.lid()?.to_string()),
        row("port_lmc", "0x00"),
        row("link_layer", "Ethernet"),
    ];
    if args.verbose {
        port.push(row("max_msg_sz", &format!("{:#x}", device.attributes().max_msg_sz)));
        let places = gids.last().map_or(0, |gid| gid.index + 1);
        port.push(row("gid_tbl_len", &places.to_string()));
        for gid in &gids {
            let shown = Ipv6Addr::from(gid.raw);
            let name = format!("GID[{:3}]", gid.index);
            port.push(row(&name, &format!("{shown} ({})", gid.interface)));
        }
    }
    print(12, &port);
    Ok(())
}

fn row(name: &str, value: &str) -> [String; 2] {
    [format!("{name}:"), value.to_owned()]
}

fn print(indent: usize, rows: &[[String; 2]]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.add_rows(rows);
    for line in table.lines() {
        // The table has a space of its own before each line.
        println!("{:1$}{2}", "", indent - 1, line.trim_end());
    }
}

/// The limits, by the names that `ibv_devinfo -v` gives them.
fn limits(device: &Device) -> Vec<[String; 2]> {
    let limits = device.attributes();
    vec![
        row("max_mr_size", &format!("{:#x}", limits.max_mr_size)),
        row("max_qp", &limits.max_qp.to_string()),
        row("max_qp_wr", &limits.max_qp_wr.to_string()),
        row("max_sge", &limits.max_sge.to_string()),
        row("max_sge_rd", &limits.max_sge_rd.to_string()),
        row("max_inline_data", &limits.max_inline_data.to_string()),
        row("max_cq", &limits.max_cq.to_string()),
        row("max_cqe", &limits.max_cqe.to_string()),
        row("max_mr", &limits.max_mr.to_string()),
        row("max_mw", &limits.max_mw.to_string()),
        row("max_pd", &limits.max_pd.to_string()),
        row("max_qp_rd_atom", &limits.max_qp_rd_atom.to_string()),
        row("max_qp_init_rd_atom", &limits.max_qp_init_rd_atom.to_string()),
        row("atomic_cap", "ATOMIC_GLOB (2)"),
        row("max_srq", &limits.max_srq.to_string()),
        row("max_srq_wr", &limits.max_srq_wr.to_string()),
        row("max_srq_sge", &limits.max_srq_sge.to_string()),
    ]
}

/// Name and number of the transport, as the verbs have them.
const fn transport(personality: Personality) -> &'static str {
    match personality {
        Personality::Roce => "InfiniBand (0)",
        _ => "iWARP (1)",
    }
}

/// The verbs know five sizes: the largest that fits.
const fn active_mtu(mtu: u32) -> &'static str {
    match mtu {
        4096.. => "4096 (5)",
        2048.. => "2048 (4)",
        1024.. => "1024 (3)",
        512.. => "512 (2)",
        _ => "256 (1)",
    }
}

#[cfg(test)]
mod tests {
    use super::active_mtu;

    #[test]
    fn mtus_are_rounded_down() {
        assert_eq!(active_mtu(1500), "1024 (3)");
        assert_eq!(active_mtu(9000), "4096 (5)");
        assert_eq!(active_mtu(576), "512 (2)");
    }
}
