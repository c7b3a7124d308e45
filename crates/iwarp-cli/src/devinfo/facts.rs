// SPDX-License-Identifier: MIT OR Apache-2.0

//! The properties that the drop-in libraries tell programs of the device, under the names of
//! `ibv_devinfo`.
//!
//! `cargo xtask dist` compares these with what ibv_devinfo shows on the libraries.

use std::net::Ipv6Addr;

use anyhow::Result;
use iwarp::verbs::Gid;
use iwarp::{Device, LocalPath, Personality, Wire};
use iwarp_os::guid;
use serde_json::json;

use super::fact::Fact;

/// Flags of `enum ibv_device_cap_flags`.
const CAPABILITIES: [(&str, u32); 5] = [
    ("CURR_QP_STATE_MOD", 1 << 7),
    ("SYS_IMAGE_GUID", 1 << 11),
    ("MEM_WINDOW", 1 << 17),
    ("MEM_MGT_EXTENSIONS", 1 << 21),
    ("MEM_WINDOW_TYPE_2B", 1 << 24),
];
/// A receiver without a receive makes the sender wait.
const RNR_NAK: (&str, u32) = ("RC_RNR_NAK_GEN", 1 << 12);

/// The GID table's kind of entry, as ibv_devinfo calls it.
pub(super) fn gid_type(device: &Device) -> &'static str {
    match device.personality() {
        Personality::Roce => "RoCE v2",
        _ => "RoCE v1",
    }
}

/// A GID as an address.
pub(super) fn text(gid: &Gid) -> String {
    Ipv6Addr::from(gid.raw).to_string()
}

pub(super) fn of_device(device: &Device) -> Vec<Fact> {
    let limits = device.attributes();
    let roce = device.personality() == Personality::Roce;
    let transport = if roce { ("InfiniBand", 0) } else { ("iWARP", 1) };
    let mut facts = vec![
        Fact::word("transport", transport.0, transport.1),
        Fact::text("fw_ver", limits.fw_ver),
        Fact::text("node_guid", &guid::in_groups(&device.node_guid().to_be_bytes())),
        Fact::text("sys_image_guid", &guid::in_groups(&device.system_image_guid().to_be_bytes())),
        Fact::hex("vendor_id", limits.vendor_id, 4),
        Fact::number("vendor_part_id", limits.vendor_part_id),
        Fact::hex("hw_ver", limits.hw_ver, 0),
        Fact::text("board_id", "iwarp"),
        Fact::number("phys_port_cnt", limits.phys_port_cnt),
    ];
    let mut capabilities = CAPABILITIES.to_vec();
    if roce {
        capabilities.insert(3, RNR_NAK);
    }
    let number = capabilities.iter().map(|(_, bit)| bit).sum();
    let names: Vec<&str> = capabilities.iter().map(|(name, _)| *name).collect();
    let atomic = if roce { ("ATOMIC_HCA", 1) } else { ("ATOMIC_GLOB", 2) };
    const NONE: u32 = 0;
    let details = [
        Fact::hex("max_mr_size", limits.max_mr_size, 0),
        Fact::hex("page_size_cap", limits.page_size_cap, 0),
        Fact::number("max_qp", limits.max_qp),
        Fact::number("max_qp_wr", limits.max_qp_wr),
        Fact::flags("device_cap_flags", Some(number), &names),
        Fact::number("max_sge", limits.max_sge),
        Fact::number("max_sge_rd", limits.max_sge_rd),
        Fact::number("max_inline_data", limits.max_inline_data),
        Fact::number("max_cq", limits.max_cq),
        Fact::number("max_cqe", limits.max_cqe),
        Fact::number("max_mr", limits.max_mr),
        Fact::number("max_pd", limits.max_pd),
        Fact::number("max_qp_rd_atom", limits.max_qp_rd_atom),
        Fact::number("max_ee_rd_atom", NONE),
        Fact::number("max_res_rd_atom", limits.max_res_rd_atom),
        Fact::number("max_qp_init_rd_atom", limits.max_qp_init_rd_atom),
        Fact::number("max_ee_init_rd_atom", NONE),
        Fact::word("atomic_cap", atomic.0, atomic.1),
        Fact::number("max_ee", NONE),
        Fact::number("max_rdd", NONE),
        Fact::number("max_mw", limits.max_mw),
        Fact::number("max_raw_ipv6_qp", NONE),
        Fact::number("max_raw_ethy_qp", NONE),
        Fact::number("max_mcast_grp", limits.max_mcast_grp),
        Fact::number("max_mcast_qp_attach", limits.max_mcast_grp),
        Fact::number("max_total_mcast_qp_attach", limits.max_mcast_grp),
        Fact::number("max_ah", limits.max_ah),
        Fact::number("max_fmr", NONE),
        Fact::number("max_srq", limits.max_srq),
        Fact::number("max_srq_wr", limits.max_srq_wr),
        Fact::number("max_srq_sge", limits.max_srq_sge),
        Fact::number("max_pkeys", limits.max_pkeys),
        Fact::number("local_ca_ack_delay", limits.local_ca_ack_delay),
    ];
    facts.extend(details.into_iter().chain(on_demand()).map(Fact::detail));
    facts.push(Fact::number("num_comp_vectors", limits.num_comp_vectors).detail());
    facts.push(local_path(device));
    facts
}

/// The way of connections within the host, which no card has: the setting, and whether this process
/// could move a connection.
fn local_path(device: &Device) -> Fact {
    let setting = device.options().local;
    // An end that does not want to does not try.
    let missing = (setting != LocalPath::Off).then(|| device.local_path_hindrance()).flatten();
    let speaks_roce =
        device.personality() == Personality::Roce && device.options().wire == Wire::Roce;
    let other = if speaks_roce { "UDP" } else { "TCP" };
    let shown = match missing {
        _ if setting == LocalPath::Off => format!("off ({other})"),
        None => format!("{setting} (shared memory)"),
        Some(missing) => format!("{setting} ({other}: {missing})"),
    };
    let works = setting != LocalPath::Off && missing.is_none();
    let json = json!({ "setting": setting.to_string(), "works": works, "missing": missing });
    Fact::new("local_path", shown, json)
}

/// Memory on demand serves any operation that reaches memory.
fn on_demand() -> [Fact; 5] {
    const MESSAGES: [&str; 3] = ["SUPPORT_SEND", "SUPPORT_RECV", "SUPPORT_SRQ"];
    let with = |more: &[&'static str]| [&MESSAGES[..2], more, &MESSAGES[2..]].concat();
    [
        Fact::flags("general_odp_caps", None, &["ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT"]),
        Fact::flags(
            "rc_odp_caps",
            None,
            &with(&["SUPPORT_WRITE", "SUPPORT_READ", "SUPPORT_ATOMIC"]),
        ),
        Fact::flags("uc_odp_caps", None, &with(&["SUPPORT_WRITE"])),
        Fact::flags("ud_odp_caps", None, &with(&[])),
        Fact::new("xrc_odp_caps", "\nNO SUPPORT", json!([])),
    ]
}

/// `listed`: the GIDs that programs find by looking through the table.
pub(super) fn of_port(device: &Device, port: u8, listed: &[Gid]) -> Result<Vec<Fact>> {
    const NONE: u32 = 0;
    let limits = device.attributes();
    let (active, number) = active_mtu(device.port_gid_table(port)?.first().and_then(|gid| gid.mtu));
    let places = listed.last().map_or(0, |gid| gid.index + 1);
    let mut facts = vec![
        Fact::word("state", "PORT_ACTIVE", 4),
        Fact::word("max_mtu", "4096", 5),
        Fact::word("active_mtu", active, number),
        Fact::number("sm_lid", NONE),
        Fact::number("port_lid", device.port_lid(port)?),
        Fact::hex("port_lmc", NONE, 2),
        Fact::text("link_layer", "Ethernet"),
    ];
    let speed = device.speed();
    let (width, rate) = speed.names();
    let details = [
        Fact::hex("max_msg_sz", limits.max_msg_sz, 0),
        Fact::hex("port_cap_flags", 0x0401_0000_u32, 8),
        Fact::hex("port_cap_flags2", NONE, 4),
        Fact::word("max_vl_num", "1", 1),
        Fact::hex("bad_pkey_cntr", NONE, 1),
        Fact::hex("qkey_viol_cntr", NONE, 1),
        Fact::number("sm_sl", NONE),
        Fact::number("pkey_tbl_len", limits.max_pkeys),
        Fact::number("gid_tbl_len", places as u64),
        Fact::number("subnet_timeout", NONE),
        Fact::number("init_type_reply", NONE),
        Fact::word("active_width", width, speed.active_width().into()),
        Fact::word("active_speed", rate, speed.active_speed().into()),
        Fact::word("phys_state", "LINK_UP", 5),
    ];
    facts.extend(details.map(Fact::detail));
    Ok(facts)
}

/// The largest of the verbs' five sizes whose packets, with their headers, an interface of `mtu`
/// bytes can carry, with its number.
fn active_mtu(mtu: Option<u32>) -> (&'static str, u32) {
    const HEADERS: u32 = 76;
    match mtu.unwrap_or(1500).saturating_sub(HEADERS) {
        4096.. => ("4096", 5),
        2048.. => ("2048", 4),
        1024.. => ("1024", 3),
        512.. => ("512", 2),
        _ => ("256", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::active_mtu;

    #[test]
    fn mtus_are_rounded_down() {
        assert_eq!(active_mtu(Some(1500)), ("1024", 3));
        assert_eq!(active_mtu(Some(9000)), ("4096", 5));
        assert_eq!(active_mtu(Some(576)), ("256", 1));
        assert_eq!(active_mtu(None), ("1024", 3));
    }
}
