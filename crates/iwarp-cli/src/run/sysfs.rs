// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files in which Linux shows RDMA devices, for programs that look at them, and the description
//! of the devices for those that ask for them by netlink.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use iwarp::{COUNTER_NAMES, Gid, NamedDevice, Options, Personality};
use iwarp_os::addr::{self, Interface, InterfaceAddr};
use iwarp_os::{board, guid, ledger, roster};

use super::links::{self, Content};

/// A directory with the entries that the devices would have in /sys and /dev.
///
/// Beside them is the folder `counted`, which only the preloaded library looks at.
pub(super) fn tree(options: &Options) -> Result<PathBuf> {
    let interfaces = addr::interfaces()?;
    let mut tree = Tree(Vec::new());
    // Programs ask whether there is a connection manager, or want a character device that they may
    // open (UCX).
    tree.link("dev/infiniband/rdma_cm", "/dev/null");
    tree.0.push(("counted/words".to_owned(), Content::Zeros(board::OCTETS)));
    tree.0.push(("counted/processes".to_owned(), Content::Zeros(ledger::OCTETS)));
    // The packet numbers that queue pairs begin with prove to peers that they are the right ones.
    tree.0.push(("counted/objects".to_owned(), Content::Private(roster::OCTETS)));
    let mut described = vec![counters_by_netlink()];
    let mut before = 0;
    for (place, device) in options.visible_devices().iter().enumerate() {
        tree.link(format!("dev/infiniband/uverbs{place}"), "/dev/null");
        let ports: Vec<Table<'_>> =
            device.port_interfaces().map(|only| addresses(&interfaces, only)).collect();
        let own = options.for_device(device);
        tree.device(&own, place, device, &ports, before);
        before += ports.len();
        described.push(by_netlink(&own, place, device, &ports));
    }
    tree.text("counted/devices", &described.join("\n"));
    links::directory("sysfs", &tree.0)
}

/// The addresses of a port, in the order of its GID table.
type Table<'a> = Vec<(InterfaceAddr, &'a Interface)>;

/// The addresses of all interfaces, or of `only`.
fn addresses<'a>(interfaces: &'a [Interface], only: Option<&str>) -> Table<'a> {
    let mut table = addr::by_reach(interfaces);
    table.retain(|(_, interface)| only.is_none_or(|only| interface.name == only));
    table
}

/// The contents of the tree, by the paths below it.
struct Tree(Vec<(String, Content)>);

impl Tree {
    fn link(&mut self, name: impl Into<String>, target: impl Into<PathBuf>) {
        self.0.push((name.into(), Content::Link(target.into())));
    }

    fn text(&mut self, name: impl Into<String>, text: &str) {
        self.0.push((name.into(), Content::Text(format!("{text}\n"))));
    }

    /// Adds the files of a device, which has these options. On Linux the entry of the class is a
    /// link to a folder below that of the device which it is a function of: programs look there for
    /// the network interface and the NUMA node. `before`: the ports of the devices before it.
    fn device(
        &mut self,
        options: &Options,
        place: usize,
        device: &NamedDevice,
        ports: &[Table<'_>],
        before: usize,
    ) {
        let name = &device.name;
        let node_type = match options.personality {
            Personality::Roce => "1: CA",
            _ => "4: RNIC",
        };
        let interfaces = distinct(&ports.concat());
        let hardware = format!("sys/devices/iwarp/{name}");
        self.text(format!("{hardware}/numa_node"), &numa_node(&interfaces));
        for interface in interfaces.iter().filter(|interface| !interface.loopback) {
            let target = Path::new("/sys/class/net").join(&interface.name);
            self.link(format!("{hardware}/net/{}", interface.name), target);
        }
        let link = format!("../../devices/iwarp/{name}/infiniband/{name}");
        self.link(format!("sys/class/infiniband/{name}"), link);

        let own = format!("{hardware}/infiniband/{name}");
        self.link(format!("{own}/device"), format!("../../../{name}"));
        let host = guid::of_host();
        let written = |guid: u64| guid::in_groups(&guid.to_be_bytes());
        for (file, value) in [
            ("node_type", node_type.to_owned()),
            ("node_guid", written(of_node(host, place))),
            ("sys_image_guid", written(host)),
            ("fw_ver", env!("CARGO_PKG_VERSION").to_owned()),
            ("hw_rev", "1".to_owned()),
            ("hca_type", "iwarp".to_owned()),
            ("board_id", "iwarp".to_owned()),
            ("node_desc", "iwarp".to_owned()),
        ] {
            self.text(format!("{own}/{file}"), &value);
        }
        for (number, table) in (1..).zip(ports) {
            let port = format!("{own}/ports/{number}");
            self.port(&port, options, table);
            let place = format!("{name}/ports/{number}");
            self.counters(&port, &place, before + number - 1, &distinct(table));
        }
    }

    fn port(&mut self, port: &str, options: &Options, table: &[(InterfaceAddr, &Interface)]) {
        let lid = table.iter().find_map(|(addr, _)| match addr.ip {
            IpAddr::V4(ip) => Some(ip.to_bits() as u16),
            IpAddr::V6(_) => None,
        });
        let lid = format!("{:#x}", lid.unwrap_or(0));
        for (file, value) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "Ethernet"),
            ("rate", &options.speed.rate()),
            ("lid", &lid),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            // IBV_PORT_CM_SUP and IBV_PORT_IP_BASED_GIDS.
            ("cap_mask", "0x04010000"),
            ("pkeys/0", "0xffff"),
        ] {
            self.text(format!("{port}/{file}"), value);
        }
        for (index, (addr, interface)) in table.iter().enumerate() {
            self.text(format!("{port}/gids/{index}"), &guid::in_groups(&Gid::raw_of(addr.ip)));
            self.text(format!("{port}/gid_attrs/types/{index}"), options.personality.gid_type());
            self.text(format!("{port}/gid_attrs/ndevs/{index}"), &interface.name);
        }
    }

    /// Traffic is counted by the processes of this tree that live; RoCE's own counters are those of
    /// all its processes; and the other counters that the kernel has for an RDMA device are those
    /// of the interfaces below the port. `number`: the port's among those of all devices.
    fn counters(&mut self, port: &str, place: &str, number: usize, interfaces: &[&Interface]) {
        for (kind, counter, divisor, count) in MOVED {
            let list = format!("{divisor}\n#{}", ledger::traffic_number(number, *count));
            self.text(format!("counted/{place}/{kind}/{counter}"), &list);
            // For programs that read it without the preloaded library, as below.
            self.text(format!("{port}/{kind}/{counter}"), "0");
        }
        for (counter, counted) in COUNTED {
            let files: Vec<_> = interfaces
                .iter()
                .map(|interface| format!("/sys/class/net/{}/{counted}", interface.name))
                .collect();
            let list = format!("1\n{}", files.join("\n"));
            self.text(format!("counted/{place}/counters/{counter}"), &list);
            match files.first() {
                Some(file) => self.link(format!("{port}/counters/{counter}"), file),
                None => self.text(format!("{port}/counters/{counter}"), "0"),
            }
        }
        for (word, counter) in COUNTER_NAMES.iter().enumerate() {
            let line = format!("1\n@{}", (number * board::PART + word) * size_of::<u64>());
            self.text(format!("counted/{place}/hw_counters/{counter}"), &line);
            self.text(format!("{port}/hw_counters/{counter}"), "0");
        }
        for counter in ZERO {
            self.text(format!("{port}/counters/{counter}"), "0");
        }
        self.text(format!("{port}/hw_counters/lifespan"), "10");
    }
}

/// Folder and name of a counter, the bytes or packets that it counts as one, and the count that
/// processes have of them.
///
/// Bytes are words of four in `counters`, as InfiniBand has it (PortXmitData), and bytes in
/// `hw_counters`.
const MOVED: &[(&str, &str, u32, usize)] = &[
    ("counters", "port_rcv_data", 4, ledger::RECEIVED_OCTETS),
    ("counters", "port_xmit_data", 4, ledger::SENT_OCTETS),
    ("counters", "port_rcv_packets", 1, ledger::RECEIVED_PACKETS),
    ("counters", "port_xmit_packets", 1, ledger::SENT_PACKETS),
    ("counters", "unicast_rcv_packets", 1, ledger::RECEIVED_PACKETS),
    ("counters", "unicast_xmit_packets", 1, ledger::SENT_PACKETS),
    ("hw_counters", "rx_bytes", 1, ledger::RECEIVED_OCTETS),
    ("hw_counters", "tx_bytes", 1, ledger::SENT_OCTETS),
    ("hw_counters", "rx_pkts", 1, ledger::RECEIVED_PACKETS),
    ("hw_counters", "tx_pkts", 1, ledger::SENT_PACKETS),
];

/// Name of a counter in `counters`, and its file below an interface.
const COUNTED: &[(&str, &str)] = &[
    ("multicast_rcv_packets", "statistics/multicast"),
    ("port_rcv_errors", "statistics/rx_errors"),
    ("port_xmit_discards", "statistics/tx_dropped"),
    ("link_downed", "carrier_down_count"),
];

/// Counters of InfiniBand's links, which nothing here increments.
const ZERO: &[&str] = &[
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_wait",
    "symbol_error",
];

/// The line with the names of all counters, and in [`by_netlink`] that of a device: what
/// `netlink::Devices` of the preloaded library reads.
fn counters_by_netlink() -> String {
    let moved = MOVED.iter().filter(|(kind, ..)| *kind == "hw_counters");
    let names: Vec<_> = moved.map(|(_, name, ..)| *name).chain(COUNTER_NAMES).collect();
    names.join(" ")
}

/// Numbers are hexadecimal. `options`: the device's.
fn by_netlink(
    options: &Options,
    place: usize,
    device: &NamedDevice,
    ports: &[Table<'_>],
) -> String {
    let (protocol, node_type, flags) = match options.personality {
        Personality::Roce => ("roce", 1, CAPABILITIES | RC_RNR_NAK_GEN),
        _ => ("iw", 4, CAPABILITIES),
    };
    let (name, version, host) = (&device.name, env!("CARGO_PKG_VERSION"), guid::of_host());
    let node = of_node(host, place);
    let below = |table: &Table<'_>| {
        let interfaces = distinct(table);
        let below = interfaces.iter().find(|one| !one.loopback).or_else(|| interfaces.first());
        below.map(|one| format!(" {:x} {}", one.index, one.name))
    };
    let below: String = match ports {
        [only] => below(only).unwrap_or_default(),
        // Each has its place, also one whose interface has no address.
        _ => ports.iter().map(|port| below(port).unwrap_or_else(|| " 0 -".to_owned())).collect(),
    };
    format!("{name} {protocol} {node_type} {version} {node:x} {host:x} {flags:x}{below}")
}

/// The flags that `ibv_query_device` says: `IBV_DEVICE_CURR_QP_STATE_MOD`, `SYS_IMAGE_GUID`,
/// `MEM_WINDOW`, `MEM_MGT_EXTENSIONS` and `MEM_WINDOW_TYPE_2B`.
const CAPABILITIES: u32 = 1 << 7 | 1 << 11 | 1 << 17 | 1 << 21 | 1 << 24;
const RC_RNR_NAK_GEN: u32 = 1 << 12;

fn of_node(host: u64, place: usize) -> u64 {
    host.wrapping_add(place as u64)
}

fn distinct<'a>(table: &[(InterfaceAddr, &'a Interface)]) -> Vec<&'a Interface> {
    let mut found: Vec<&Interface> = Vec::new();
    for (_, interface) in table {
        if !found.iter().any(|known| known.name == interface.name) {
            found.push(interface);
        }
    }
    found
}

/// The NUMA node of the first interface that is a card's; -1 where no node is nearer than another.
fn numa_node(interfaces: &[&Interface]) -> String {
    let node = |interface: &&Interface| {
        let file = Path::new("/sys/class/net").join(&interface.name).join("device/numa_node");
        fs::read_to_string(file).ok()?.trim().parse::<i32>().ok()
    };
    interfaces.iter().find_map(node).unwrap_or(-1).to_string()
}
