//! The files in which Linux shows an RDMA device, for programs that look at them.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Result;
use iwarp_os::{addr, environment};

use super::Personality;
use super::links::{self, Content};
use crate::devinfo;

/// A directory with the entries that the device would have in /sys and /dev.
pub(super) fn tree(personality: Option<Personality>) -> Result<PathBuf> {
    let interfaces = addr::interfaces()?;
    let roce = match personality {
        Some(personality) => matches!(personality, Personality::Roce),
        None => environment::variable("IWARP_PERSONALITY").is_some_and(|value| value == "roce"),
    };
    let mut files = Vec::new();
    let mut add = |name: String, content| files.push((name, content));
    // UCX wants a character device that it may open.
    add("dev/infiniband/uverbs0".to_owned(), Content::Link("/dev/null".into()));

    let device = format!("sys/class/infiniband/{}", if roce { "roce0" } else { "iwarp0" });
    let guid = devinfo::guid(iwarp_os::guid::of_host());
    let text = |text: &str| Content::Text(format!("{text}\n"));
    add(format!("{device}/node_type"), text(if roce { "1: CA" } else { "4: RNIC" }));
    add(format!("{device}/node_guid"), text(&guid));
    add(format!("{device}/sys_image_guid"), text(&guid));
    add(format!("{device}/fw_ver"), text(env!("CARGO_PKG_VERSION")));
    // No node is nearer than another.
    add(format!("{device}/device/numa_node"), text("-1"));

    let port = format!("{device}/ports/1");
    for (name, value) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("link_layer", "Ethernet"),
        ("pkeys/0", "0xffff"),
    ] {
        add(format!("{port}/{name}"), text(value));
    }
    let mut shown: Vec<&str> = Vec::new();
    for (index, (addr, interface)) in addr::by_reach(&interfaces).into_iter().enumerate() {
        let kind = if roce { "RoCE v2" } else { "IB/RoCE v1" };
        add(format!("{port}/gids/{index}"), text(&gid(addr.ip)));
        add(format!("{port}/gid_attrs/types/{index}"), text(kind));
        add(format!("{port}/gid_attrs/ndevs/{index}"), text(&interface.name));
        if !shown.contains(&interface.name.as_str()) && !interface.loopback {
            shown.push(&interface.name);
        }
    }
    for (place, name) in shown.iter().enumerate() {
        let interface = PathBuf::from("/sys/class/net").join(name);
        if place == 0 {
            // What the kernel counts for an RDMA device it counts for the interface below it.
            for (counter, counted) in [
                ("port_rcv_packets", "rx_packets"),
                ("port_xmit_packets", "tx_packets"),
                ("port_rcv_errors", "rx_errors"),
                ("port_xmit_discards", "tx_dropped"),
            ] {
                let counted = interface.join("statistics").join(counted);
                add(format!("{port}/counters/{counter}"), Content::Link(counted));
            }
        }
        add(format!("{device}/device/net/{name}"), Content::Link(interface));
    }
    links::directory("sysfs", &files)
}

/// All sixteen octets, as the kernel writes them.
fn gid(ip: IpAddr) -> String {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    ip.segments().map(|segment| format!("{segment:04x}")).join(":")
}
