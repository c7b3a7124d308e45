// SPDX-License-Identifier: MIT OR Apache-2.0

//! The properties of the device and its ports.

use std::ffi::c_int;

use iwarp::Personality;
use iwarp::faults;
use iwarp::verbs::Gid;

use super::Context;
use super::context::engine;
use super::list::{self, write_str};
use super::{dm, handles};
use crate::abi::flags::*;
use crate::abi::{
    Plain, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_odp_caps,
    ibv_port_attr, ibv_values_ex,
};
use crate::calls::{Shown as _, called};
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// The only partition.
const DEFAULT_PKEY: u16 = 0xffff;

/// `IBV_QPF_GRH_REQUIRED`: addresses are GIDs.
const GRH_REQUIRED: u8 = 1;

/// Bytes of `struct ibv_port_attr` that the oldest programs have.
const OLDEST_PORT_ATTR: usize = 48;

/// The GUID of the device at `place`, bytes in network order; zeros where there is no device.
pub(crate) fn guid(place: usize) -> [u8; 8] {
    let first = engine().map(|device| device.system_image_guid());
    first.map_or([0; 8], |guid| guid.wrapping_add(place as u64).to_be_bytes())
}

/// `ibv_get_device_guid`: in network order.
pub extern "C" fn ibv_get_device_guid(device: &ibv_device) -> u64 {
    guard::value(called!(ibv_get_device_guid(device)), 0, || {
        u64::from_ne_bytes(guid(list::place(device)))
    })
}

/// Limits are signed in C.
fn int(limit: u32) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

fn attributes(context: &Context) -> ibv_device_attr {
    let limits = context.device().attributes();
    debug_assert_eq!(limits.max_ah, handles::MAX, "what is promised is what is kept");
    let mut attr = ibv_device_attr {
        node_guid: context.device().node_guid().to_be_bytes(),
        sys_image_guid: context.device().system_image_guid().to_be_bytes(),
        max_mr_size: limits.max_mr_size,
        page_size_cap: limits.page_size_cap,
        vendor_id: limits.vendor_id,
        vendor_part_id: limits.vendor_part_id,
        hw_ver: limits.hw_ver,
        max_qp: int(limits.max_qp),
        max_qp_wr: int(limits.max_qp_wr),
        // Only what is supported: no queue of work requests changes its size.
        device_cap_flags: IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_MGT_EXTENSIONS
            | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        max_sge: int(limits.max_sge),
        max_sge_rd: int(limits.max_sge_rd),
        max_cq: int(limits.max_cq),
        max_cqe: int(limits.max_cqe),
        max_mr: int(limits.max_mr),
        max_pd: int(limits.max_pd),
        max_qp_rd_atom: c_int::from(limits.max_qp_rd_atom),
        max_res_rd_atom: int(limits.max_res_rd_atom),
        max_qp_init_rd_atom: c_int::from(limits.max_qp_init_rd_atom),
        atomic_cap: IBV_ATOMIC_GLOB,
        max_mw: int(limits.max_mw),
        max_srq: int(limits.max_srq),
        max_srq_wr: int(limits.max_srq_wr),
        max_srq_sge: int(limits.max_srq_sge),
        max_pkeys: limits.max_pkeys,
        local_ca_ack_delay: limits.local_ca_ack_delay,
        phys_port_cnt: limits.phys_port_cnt,
        max_ah: int(limits.max_ah),
        max_mcast_grp: int(limits.max_mcast_grp),
        max_mcast_qp_attach: int(limits.max_mcast_grp),
        max_total_mcast_qp_attach: int(limits.max_mcast_grp),
        ..ibv_device_attr::zeroed()
    };
    if context.device().personality() == Personality::Roce {
        attr.device_cap_flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
        // Ours are atomic toward the processors as well (`iwarp_mem`), but that is more than
        // network adapters have, and programs for them want to hear their word (UCX takes no
        // other).
        attr.atomic_cap = IBV_ATOMIC_HCA;
    }
    write_str(&mut attr.fw_ver, limits.fw_ver);
    attr
}

fn port(context: &Context, number: u8) -> Result<ibv_port_attr, Errno> {
    let gids = context.device().port_gid_table(number)?;
    let speed = context.device().speed();
    // "Link up", or "Disabled", as cards without a cable say.
    let (state, phys_state) =
        if faults::is_pulled() { (IBV_PORT_DOWN, 3) } else { (IBV_PORT_ACTIVE, 5) };
    Ok(ibv_port_attr {
        state,
        max_mtu: mtu_number(u32::MAX),
        active_mtu: active_mtu(&gids),
        gid_tbl_len: shown(&gids).last().map_or(0, |last| int(last.index as u32 + 1)),
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: context.device().attributes().max_msg_sz,
        pkey_tbl_len: 1,
        lid: context.device().port_lid(number)?,
        max_vl_num: 1,
        active_width: speed.active_width(),
        active_speed: speed.active_speed(),
        phys_state,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: GRH_REQUIRED,
        ..ibv_port_attr::zeroed()
    })
}

/// The MTU of the interface whose address comes first.
fn active_mtu(gids: &[Gid]) -> u32 {
    mtu_number(gids.first().and_then(|gid| gid.mtu).unwrap_or(1500))
}

/// Bytes of the longest message that is one packet, as `ibv_query_port` tells it by `active_mtu`.
pub(super) fn path_octets(context: &Context, port: u8) -> Result<u32, Errno> {
    Ok(128 << active_mtu(&context.device().port_gid_table(port)?))
}

/// The number of the largest InfiniBand MTU that packets of `mtu` bytes could carry with their
/// headers.
fn mtu_number(mtu: u32) -> u32 {
    const HEADERS: u32 = 76;
    (1..5)
        .rev()
        .find(|number| (128 << (number + 1)) + HEADERS <= mtu)
        .map_or(1, |number| number + 1)
}

/// The number of one of the device's ports.
///
/// # Errors
///
/// `EINVAL` where there is no such port.
pub(super) fn check_port(context: &Context, port_num: u32) -> Result<u8, Errno> {
    let last = context.device().attributes().phys_port_cnt;
    match u8::try_from(port_num) {
        Ok(number @ 1..) if number <= last => Ok(number),
        _ if last == 1 => Err(refuse!(EINVAL, "port_num is {port_num}; the only port is 1")),
        _ => Err(refuse!(EINVAL, "port_num is {port_num}; the device has ports 1 to {last}")),
    }
}

/// Copies as much of `from` as the caller has room for, and clears the rest.
///
/// # Safety
///
/// `to` has room for `len` bytes.
unsafe fn write_prefix<T: Plain>(to: *mut T, len: usize, from: &T) {
    let (to, size) = (to.cast::<u8>(), len.min(size_of::<T>()));
    // SAFETY: the caller's promise; `from` has that many.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), to, size);
        to.add(size).write_bytes(0, len - size);
    }
}

/// `ibv_query_device`
pub extern "C" fn ibv_query_device(context: &Context, attr: *mut ibv_device_attr) -> c_int {
    guard::errno(called!(ibv_query_device(context, attr)), || {
        let attributes = attributes(context);
        // SAFETY: the program passes room for one.
        unsafe { attr.write(attributes) };
        Ok(())
    })
}

/// `ibv_query_device_ex`
pub(crate) extern "C" fn query_device_ex(
    context: &Context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    guard::errno(called!(ibv_query_device_ex(context, input, attr, size)), || {
        if size < size_of::<ibv_device_attr>() {
            return Err(refuse!(EINVAL, "there is no room for the attributes: {size} bytes"));
        }
        let attributes = ibv_device_attr_ex {
            orig_attr: attributes(context),
            device_cap_flags_ex: u64::from(attributes(context).device_cap_flags),
            odp_caps: odp_caps(),
            max_dm_size: dm::MAX as u64,
            phys_port_cnt_ex: context.device().attributes().phys_port_cnt.into(),
            ..ibv_device_attr_ex::zeroed()
        };
        // SAFETY: the program says how much room it has.
        unsafe { write_prefix(attr, size, &attributes) };
        Ok(())
    })
}

/// Memory on demand serves every kind of access: each finds out for itself what is there.
fn odp_caps() -> ibv_odp_caps {
    const MESSAGES: u32 = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    const CONNECTED: u32 = MESSAGES | IBV_ODP_SUPPORT_WRITE;

    ibv_odp_caps {
        general_caps: IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
        rc_odp_caps: CONNECTED | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
        uc_odp_caps: CONNECTED,
        ud_odp_caps: MESSAGES,
    }
}

/// `ibv_query_rt_values_ex`
pub(crate) extern "C" fn query_rt_values(_: &Context, values: &mut ibv_values_ex) -> c_int {
    const RAW_CLOCK: u32 = 1;
    guard::errno(called!(ibv_query_rt_values(values)), || {
        if values.comp_mask & !RAW_CLOCK != 0 {
            return Err(refuse!(EINVAL, "comp_mask {:#x} has unknown bits", values.comp_mask));
        }
        let now = iwarp_os::clock::now();
        values.raw_clock.tv_sec = now.as_secs().cast_signed();
        values.raw_clock.tv_nsec = now.subsec_nanos().into();
        values.comp_mask = RAW_CLOCK;
        Ok(())
    })
}

/// `ibv_query_port` as a function: for programs with the oldest header.
pub extern "C" fn ibv_query_port(
    context: &Context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    query_port(context, port_num, attr, OLDEST_PORT_ATTR)
}

/// `ibv_query_port` with the length that the program's header has.
pub(crate) extern "C" fn query_port(
    context: &Context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    guard::errno(called!(ibv_query_port(context, port_num, attr, len)), || {
        let number = check_port(context, port_num.into())?;
        let attributes = port(context, number)?;
        // SAFETY: the program says how much room it has.
        unsafe { write_prefix(attr, len, &attributes) };
        Ok(())
    })
}

/// `ibv_query_port_speed`, in units of 100 Mbit/s.
pub extern "C" fn ibv_query_port_speed(context: &Context, port_num: u32, speed: &mut u64) -> c_int {
    guard::errno(called!(ibv_query_port_speed(context, port_num, speed)), || {
        check_port(context, port_num)?;
        *speed = u64::from(context.device().speed().gbit()) * 10;
        Ok(())
    })
}

fn entry(context: &Context, port: u8, gid: &Gid) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw },
        gid_index: gid.index as u32,
        port_num: port.into(),
        gid_type: match context.device().personality() {
            Personality::Roce => IBV_GID_TYPE_ROCE_V2,
            _ => IBV_GID_TYPE_IB,
        },
        ndev_ifindex: gid.interface_index,
    }
}

/// The entries for a program that looks through the table: without loopback addresses, if there are
/// others. Network adapters have none, and some programs take the last entry of a kind. A program
/// that has the place of one from the connection manager may use it all the same.
fn shown(gids: &[Gid]) -> Vec<&Gid> {
    let others: Vec<&Gid> = gids.iter().filter(|gid| !gid.addr.is_loopback()).collect();
    if others.is_empty() { gids.iter().collect() } else { others }
}

/// The entry of a place in the table of a port; `None` when it is empty.
fn find(context: &Context, port: u8, index: usize) -> Result<Option<Gid>, Errno> {
    let gids = context.device().port_gid_table(port)?;
    if gids.last().is_none_or(|last| index > last.index) {
        // Programs read the table to its end.
        return Err(decline!(EINVAL, "GID index {index} is behind the end of the table"));
    }
    Ok(at_place(&gids, index).cloned())
}

/// The entry at a place of the table, if it is not empty.
pub(super) fn at_place(gids: &[Gid], index: usize) -> Option<&Gid> {
    gids.iter().find(|gid| gid.index == index)
}

/// `ibv_query_gid`: an empty place reads as zeros.
pub extern "C" fn ibv_query_gid(
    context: &Context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    guard::minus_one(called!(ibv_query_gid(context, port_num, index, gid)), || {
        let port = check_port(context, port_num.into())?;
        let index = usize::try_from(index).map_err(|_| refuse!(EINVAL, "index is {index}"))?;
        let raw = find(context, port, index)?.map_or([0; 16], |found| found.raw);
        // SAFETY: the program passes room for one. Its own type may be less aligned.
        unsafe { gid.cast::<[u8; 16]>().write(raw) };
        Ok(0)
    })
}

/// `ibv_query_gid_ex`
pub extern "C" fn _ibv_query_gid_ex(
    context: &Context,
    port_num: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    guard::errno(called!(ibv_query_gid_ex(context, port_num, index, to, flags, entry_size)), || {
        let port = check_port(context, port_num)?;
        if flags != 0 {
            return Err(decline!(EOPNOTSUPP, "flags {flags:#x} are not known"));
        }
        let gid = find(context, port, index as usize)?;
        let gid = gid.ok_or_else(|| decline!(ENODATA, "GID index {index} is empty"))?;
        // SAFETY: the program says how much room it has.
        unsafe { write_prefix(to, entry_size, &entry(context, port, &gid)) };
        Ok(())
    })
}

/// `ibv_query_gid_table`, of all ports: returns the number of entries, or a negative error number.
pub extern "C" fn _ibv_query_gid_table(
    context: &Context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let call = called!(ibv_query_gid_table(context, entries, max_entries, flags, entry_size));
    let result = guard::call(call.verb(), || {
        if flags != 0 {
            return Err(decline!(EOPNOTSUPP, "flags {flags:#x} are not known"));
        }
        let mut all = Vec::new();
        for port in 1..=context.device().attributes().phys_port_cnt {
            let gids = context.device().port_gid_table(port)?;
            all.extend(shown(&gids).into_iter().map(|gid| entry(context, port, gid)));
        }
        if all.len() > max_entries {
            let (there, room) = (all.len(), max_entries);
            return Err(refuse!(EINVAL, "the table has {there} entries; there is room for {room}"));
        }
        for (place, entry) in all.iter().enumerate() {
            let to = entries.wrapping_byte_add(place * entry_size);
            // SAFETY: the program has room for `max_entries` of this size.
            unsafe { write_prefix(to, entry_size, entry) };
        }
        Ok(all.len().cast_signed())
    });
    call.ended(|| result.as_ref().map(isize::value).map_err(Errno::number));
    result.unwrap_or_else(|error| -(error.number() as isize))
}

/// `ibv_query_gid_type`, which only tells RoCE v2 from everything else.
pub extern "C" fn ibv_query_gid_type(
    context: &Context,
    port_num: u8,
    index: u32,
    gid_type: &mut u32,
) -> c_int {
    guard::minus_one(called!(ibv_query_gid_type(context, port_num, index, gid_type)), || {
        let port = check_port(context, port_num.into())?;
        find(context, port, index as usize)?;
        *gid_type = match context.device().personality() {
            Personality::Roce => IBV_GID_TYPE_SYSFS_ROCE_V2,
            _ => IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
        };
        Ok(0)
    })
}

/// `ibv_query_pkey`: in network order.
pub extern "C" fn ibv_query_pkey(
    context: &Context,
    port_num: u8,
    index: c_int,
    pkey: &mut u16,
) -> c_int {
    guard::minus_one(called!(ibv_query_pkey(context, port_num, index, pkey)), || {
        check_port(context, port_num.into())?;
        if index != 0 {
            return Err(decline!(EINVAL, "index is {index}; the table has one entry, 0"));
        }
        *pkey = DEFAULT_PKEY.to_be();
        Ok(0)
    })
}

/// `ibv_get_pkey_index`
pub extern "C" fn ibv_get_pkey_index(context: &Context, port_num: u8, pkey: u16) -> c_int {
    guard::minus_one(called!(ibv_get_pkey_index(context, port_num, pkey)), || {
        check_port(context, port_num.into())?;
        if pkey == DEFAULT_PKEY.to_be() {
            return Ok(0);
        }
        Err(decline!(EINVAL, "the only P_Key is {DEFAULT_PKEY:#x}, in network order"))
    })
}

// SAFETY: numbers.
unsafe impl Plain for ibv_gid_entry {}

impl Context {
    /// The place of an address in the GID table of a port.
    pub fn gid_index(&self, port: u8, raw: &[u8; 16]) -> Option<u8> {
        let gids = self.device().port_gid_table(port).ok()?;
        u8::try_from(gids.iter().find(|entry| entry.raw == *raw)?.index).ok()
    }

    /// The source address that a program means by a place in the GID table of a port.
    pub(crate) fn source(&self, port: u8, index: u8) -> Result<Gid, Errno> {
        let gids = self.device().port_gid_table(port)?;
        at_place(&gids, index.into()).cloned().ok_or_else(|| {
            let there: Vec<_> =
                gids.iter().map(|gid| format!("{} ({})", gid.index, gid.addr)).collect();
            refuse!(
                EINVAL,
                "GID index {index} does not exist (sgid_index); those of this host are {}",
                there.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_leave_room_for_headers() {
        let cases =
            [(68, 1), (576, 1), (1280, 3), (1500, 3), (2200, 4), (4200, 5), (9000, 5), (65536, 5)];
        for (mtu, number) in cases {
            assert_eq!(mtu_number(mtu), number, "{mtu}");
        }
    }
}
