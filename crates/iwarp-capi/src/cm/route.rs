// SPDX-License-Identifier: MIT OR Apache-2.0

//! The way of an id: its device, its addresses and the path to its peer, as the program sees them.

use iwarp::Personality;

use super::abi::{ibv_sa_path_rec, rdma_ib_addr};
use super::id::CmId;
use super::{addr, device};
use crate::guard::Errno;
use crate::verbs::Context;

/// The port of an id whose address says none.
const FIRST_PORT: u8 = 1;
/// Selector of a value in a path record.
const EXACTLY: u8 = 2;
/// `IBV_RATE_10_GBPS`
const RATE_10_GBPS: u8 = 3;

impl CmId {
    /// Puts the id on the device and the port of its address.
    pub(super) fn enter_device(&self) -> Result<(), Errno> {
        let context = device::context(self.id.device_place().unwrap_or(0))?;
        self.verbs.set(context.as_abi());
        self.port_num.set(self.id.port_number().unwrap_or(FIRST_PORT));
        if self.pd.get().is_null() {
            self.pd.set(device::default_pd(context)?);
        }
        Ok(())
    }

    /// The context of its device; that of the first where it is on none yet.
    pub(super) fn context(&self) -> Result<&'static Context, Errno> {
        let verbs = self.verbs.get();
        if verbs.is_null() {
            return device::context(self.id.device_place().unwrap_or(0));
        }
        // SAFETY: set by `enter_device`, to a context that is never closed.
        Ok(unsafe { Context::of(verbs) })
    }

    /// True if its device looks like InfiniBand, and events come as they do there.
    pub(super) fn is_infiniband(&self) -> bool {
        let context = self.context();
        context.is_ok_and(|context| context.device().personality() == Personality::Roce)
    }

    /// The index of an address of this host in the table of the id's port.
    pub(super) fn gid_index(&self, gid: &[u8; 16]) -> Option<u8> {
        let verbs = self.verbs.get();
        if verbs.is_null() {
            return None;
        }
        // SAFETY: set by `enter_device`, to a context that is never closed.
        unsafe { Context::of(verbs) }.gid_index(self.port_num.get(), gid)
    }

    /// Has the program see the addresses that the id has.
    pub(super) fn show_addresses(&self) {
        // SAFETY: only this library writes the route, in calls that work on this id; C forbids
        // the program to read it meanwhile.
        let route = unsafe { &mut *self.route.get() };
        if let Some(local) = self.id.local_addr() {
            route.addr.src = addr::storage(local);
            route.addr.ibaddr.sgid.raw = addr::gid(local);
        }
        if let Some(peer) = self.id.peer_addr() {
            route.addr.dst = addr::storage(peer);
            route.addr.ibaddr.dgid.raw = addr::gid(peer);
        }
        if !self.verbs.get().is_null() {
            route.addr.ibaddr.pkey = device::PKEY;
        }
        self.show();
    }

    /// Has the program see the path, as InfiniBand has one.
    pub(super) fn show_path(&self) {
        // SAFETY: as in `show_addresses`.
        let route = unsafe { &mut *self.route.get() };
        let rdma_ib_addr { sgid, dgid, pkey } = route.addr.ibaddr;
        let path = ibv_sa_path_rec {
            dgid,
            sgid,
            dlid: 0,
            slid: 0,
            raw_traffic: 0,
            flow_label: 0,
            hop_limit: 64,
            traffic_class: 0,
            reversible: 1,
            numb_path: 1,
            pkey,
            sl: 0,
            mtu_selector: EXACTLY,
            mtu: device::PATH_MTU as u8,
            rate_selector: EXACTLY,
            rate: RATE_10_GBPS,
            packet_life_time_selector: EXACTLY,
            packet_life_time: 18,
            preference: 0,
        };
        let mut state = self.state();
        let path = state.path.insert(Box::new(path));
        route.path_rec = &raw mut **path;
        route.num_paths = 1;
    }
}
