// SPDX-License-Identifier: MIT OR Apache-2.0

//! Address handles: ways to other hosts, for datagrams.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

use iwarp::verbs::Gid;
use iwarp::wire::grh::{self, GRH_LEN, NoAnswer};
use iwarp::{AddressVector, Peer};

use super::Context;
use super::handles::{Entry, no_handle};
use super::pd::Pd;
use super::query::check_port;
use crate::abi::flags::IBV_WC_GRH;
use crate::abi::{ibv_ah, ibv_ah_attr, ibv_wc};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{given, refuse};

/// The address that a destination's GID stands for.
pub(super) fn destination(raw: &[u8; 16]) -> Result<IpAddr, Errno> {
    let named = Gid::addr_of(*raw);
    named.ok_or_else(|| {
        let gid = Ipv6Addr::from(*raw);
        refuse!(EINVAL, "the destination's GID {gid} is no address that can be reached")
    })
}

/// The address vector that a program describes.
///
/// # Errors
///
/// `EINVAL` where the place in the GID table is empty, or its address is of another family than the
/// destination.
pub(super) fn way(context: &Context, attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    let port = check_port(context, attr.port_num.into())?;
    let route = &attr.grh;
    let (source, destination) = if attr.is_global != 0 {
        let local = context.source(port, route.sgid_index)?;
        (local.addr, destination(&route.dgid.raw)?)
    } else if attr.dlid != 0 {
        let peer = Peer::from_lid_at(&context.device().port_gid_table(port)?, attr.dlid, 0, 0)?;
        (peer.local, peer.gid)
    } else {
        return Err(refuse!(EINVAL, "no destination: neither is_global and a GID, nor a LID"));
    };
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(refuse!(
            EINVAL,
            "GID index {} is {source}, of another family than the destination {destination}",
            route.sgid_index
        ));
    }
    Ok(AddressVector {
        flow_label: route.flow_label & 0x000f_ffff,
        traffic_class: route.traffic_class,
        hop_limit: route.hop_limit,
        ..AddressVector::new(source, destination)
    })
}

/// The way back to the sender of a datagram that was received.
fn way_back(
    context: &Context,
    port_num: u8,
    wc: &ibv_wc,
    grh: *const [u8; GRH_LEN],
) -> Result<ibv_ah_attr, Errno> {
    let mut attr = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num,
        ..ibv_ah_attr::default()
    };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    // SAFETY: the program passes the first bytes of the receive, or null.
    let grh = unsafe { grh.as_ref() };
    let grh = given!(grh)?;
    let back = grh::answer(grh).map_err(|no| match no {
        NoAnswer::Foreign => refuse!(EPROTONOSUPPORT, "the first 40 bytes are no header (GRH)"),
        NoAnswer::Multicast => refuse!(EINVAL, "a datagram to a group is not answered from there"),
    })?;
    attr.is_global = 1;
    let port = check_port(context, port_num.into())?;
    let index = context.gid_index(port, &Gid::raw_of(back.source));
    attr.grh.sgid_index = index.ok_or_else(|| {
        refuse!(EINVAL, "{} is not in the GID table of port {port} any more", back.source)
    })?;
    attr.grh.dgid.raw = Gid::raw_of(back.destination);
    attr.grh.flow_label = back.flow_label;
    attr.grh.hop_limit = back.hop_limit;
    attr.grh.traffic_class = back.traffic_class;
    Ok(attr)
}

fn create(pd: &Pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    pd.check()?;
    let context = pd.context();
    let way = way(context, attr)?;
    let entry = Entry { way, domain: pd.domain().id().0, _pd: pd.life.clone() };
    context.handles.make(context.as_abi(), pd.as_abi(), entry)
}

/// `ibv_create_ah`
pub extern "C" fn ibv_create_ah(pd: &Pd, attr: Option<&ibv_ah_attr>) -> *mut ibv_ah {
    guard::object(called!(ibv_create_ah(pd, attr)), || create(pd, given!(attr)?))
}

/// `ibv_create_ah_from_wc`
pub extern "C" fn ibv_create_ah_from_wc(
    pd: &Pd,
    wc: Option<&ibv_wc>,
    grh: *const [u8; GRH_LEN],
    port_num: u8,
) -> *mut ibv_ah {
    guard::object(called!(ibv_create_ah_from_wc(pd, wc, grh, port_num)), || {
        create(pd, &way_back(pd.context(), port_num, given!(wc)?, grh)?)
    })
}

/// `ibv_init_ah_from_wc`
pub extern "C" fn ibv_init_ah_from_wc(
    context: &Context,
    port_num: u8,
    wc: Option<&ibv_wc>,
    grh: *const [u8; GRH_LEN],
    attr: Option<&mut ibv_ah_attr>,
) -> c_int {
    guard::minus_one(called!(ibv_init_ah_from_wc(context, port_num, wc, grh, attr)), || {
        *given!(attr)? = way_back(context, port_num, given!(wc)?, grh)?;
        Ok(0)
    })
}

/// `ibv_destroy_ah`: requests that were posted with it still go out.
pub extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    guard::errno(called!(ibv_destroy_ah(ah)), || {
        // SAFETY: the program passes the address of such a structure, ours or its own, or null.
        let handle = unsafe { ah.as_ref() };
        let context = given!(handle)?.context;
        if context.is_null() {
            return Err(no_handle());
        }
        // SAFETY: it is open, as it has the handle.
        unsafe { Context::of(context) }.handles.destroy(ah)
    })
}
