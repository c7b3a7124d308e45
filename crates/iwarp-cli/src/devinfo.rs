//! `iwarp devinfo`: what `ibv_devinfo` shows of a device.

use std::net::IpAddr;

use anyhow::Result;
use comfy_table::{Table, presets};
use iwarp::Device;
use iwarp_os::addr::{self, Interface};

/// Show the RDMA device of this machine: what ibv_devinfo shows.
///
/// There is one device, with one port. It answers on all addresses of the machine, which are the
/// entries of its GID table. It needs nothing to be set up.
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
    let device = Device::open()?;
    let interfaces = addr::interfaces()?;
    let gids = gids(&interfaces);
    let guid = guid(&interfaces);

    println!("hca_id: {}", device.name());
    let mut about = vec![
        row("transport", "iWARP (1)"),
        row("fw_ver", env!("CARGO_PKG_VERSION")),
        row("node_guid", &guid),
        row("sys_image_guid", &guid),
        row("vendor_id", "0x000000"),
        row("vendor_part_id", "0"),
        row("hw_ver", "0x0"),
        row("phys_port_cnt", "1"),
    ];
    if args.verbose {
        about.extend(limits(&device));
    }
    print(4, &about);

    let mtu = gids.first().and_then(|(_, interface)| interface.mtu).unwrap_or(1500);
    println!("        port:   1");
    let mut port = vec![
        row("state", "PORT_ACTIVE (4)"),
        row("max_mtu", "4096 (5)"),
        row("active_mtu", active_mtu(mtu)),
        row("sm_lid", "0"),
        row("port_lid", "0"),
        row("port_lmc", "0x00"),
        row("link_layer", "Ethernet"),
    ];
    if args.verbose {
        port.push(row("max_msg_sz", &format!("{:#x}", device.attributes().max_msg_sz)));
        port.push(row("gid_tbl_len", &gids.len().to_string()));
        for (number, (ip, interface)) in gids.iter().enumerate() {
            port.push(row(
                &format!("GID[{number:3}]"),
                &format!("{} ({})", show(*ip), interface.name),
            ));
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

/// The addresses in the order of the GID table: the default route's sources first; bridges,
/// link-local and loopback addresses last, because several hosts may own the same.
fn gids(interfaces: &[Interface]) -> Vec<(IpAddr, &Interface)> {
    let sources = [addr::default_source_v4(), addr::default_source_v6()];
    let mut gids: Vec<_> = interfaces
        .iter()
        .flat_map(|interface| interface.addrs.iter().map(move |addr| (addr.ip, interface)))
        .collect();
    gids.sort_by_key(|(ip, interface)| {
        let source = sources.iter().position(|source| *source == Some(*ip));
        match source {
            Some(place) => place,
            None if interface.loopback || ip.is_loopback() => 5,
            None if is_link_local(*ip) => 4,
            None if interface.bridge => 3,
            None => 2,
        }
    });
    gids
}

const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// A GID is an IPv6 address; an IPv4 address is mapped into one.
fn show(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_string(),
        IpAddr::V6(ip) => ip.to_string(),
    }
}

/// An EUI-64 made of the first Ethernet address, as network cards do; zero without one.
fn guid(interfaces: &[Interface]) -> String {
    let mac = interfaces.iter().filter(|i| !i.loopback && !i.bridge).find_map(|i| i.mac);
    let Some([a, b, c, d, e, f]) = mac else { return "0000:0000:0000:0000".to_owned() };
    format!("{:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2)
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
    use super::{active_mtu, gids};
    use iwarp_os::addr::{Interface, InterfaceAddr};

    fn interface(name: &str, ips: &[&str]) -> Interface {
        let addrs = ips.iter().map(|ip| InterfaceAddr {
            ip: ip.parse().unwrap(),
            prefix_len: 24,
            scope_id: 0,
        });
        Interface {
            name: name.to_owned(),
            index: 1,
            up: true,
            running: true,
            loopback: name == "lo",
            point_to_point: false,
            bridge: name == "br0",
            mtu: Some(1500),
            mac: None,
            addrs: addrs.collect(),
        }
    }

    #[test]
    fn addresses_that_many_hosts_own_come_last() {
        let interfaces = [
            interface("lo", &["127.0.0.1", "::1"]),
            interface("br0", &["198.51.100.77"]),
            interface("eth7", &["fe80::7", "198.51.100.7"]),
        ];
        let order: Vec<_> = gids(&interfaces).iter().map(|(ip, _)| ip.to_string()).collect();
        assert_eq!(order, ["198.51.100.7", "198.51.100.77", "fe80::7", "127.0.0.1", "::1"]);
    }

    #[test]
    fn mtus_are_rounded_down() {
        assert_eq!(active_mtu(1500), "1024 (3)");
        assert_eq!(active_mtu(9000), "4096 (5)");
        assert_eq!(active_mtu(576), "512 (2)");
    }
}
