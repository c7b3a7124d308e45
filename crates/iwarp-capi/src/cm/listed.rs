// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids as other processes see them (`rdma resource show cm_id`).

use iwarp::cm::ConnectionState;
use iwarp_os::roster::{Id, Object, Row};

use super::id::CmId;
use crate::verbs::Context;
use crate::verbs::qp::Qp;

/// States of an id as Linux numbers them (`enum rdma_cm_state`).
const IDLE: u8 = 0;
const ADDR_RESOLVED: u8 = 2;
const ROUTE_RESOLVED: u8 = 4;
const CONNECT: u8 = 5;
const DISCONNECT: u8 = 6;
const ADDR_BOUND: u8 = 7;
const LISTEN: u8 = 8;

impl CmId {
    /// Has other processes see it as it is now. An id that is on no device yet is seen if it
    /// listens.
    pub(super) fn show(&self) {
        if let Some(device) = self.place() {
            let row = || Row { device, context: 0, domain: 0, object: Object::Id(self.row()) };
            self.listed.show(row);
        }
    }

    /// The place of its device in the list.
    fn place(&self) -> Option<u16> {
        let verbs = self.verbs.get();
        let place = if !verbs.is_null() {
            // SAFETY: the shared one, which stays.
            unsafe { Context::of(verbs) }.imports().place()
        } else if self.id.state() == ConnectionState::Listening {
            self.id.device_place().unwrap_or(0)
        } else {
            return None;
        };
        u16::try_from(place).ok()
    }

    fn row(&self) -> Id {
        // SAFETY: the program's queue pair, or null.
        let qp = unsafe { Qp::of(self.qp.get()) };
        let (local, peer) = (self.id.local_addr(), self.id.peer_addr());
        let is_on_device = !self.verbs.get().is_null();
        let state = match self.id.state() {
            ConnectionState::Listening => LISTEN,
            ConnectionState::Over => DISCONNECT,
            ConnectionState::Idle if self.state().is_routed => ROUTE_RESOLVED,
            ConnectionState::Idle if is_on_device && peer.is_some() => ADDR_RESOLVED,
            ConnectionState::Idle if local.is_some() => ADDR_BOUND,
            ConnectionState::Idle => IDLE,
            // It is connected, or will be.
            _ => CONNECT,
        };
        // The port spaces have 16 bits, and the types of queue pairs fewer.
        let (space, kind) = (self.ps as u16, self.qp_type as u8);
        let (pair, port) = (qp.map_or(0, Qp::number), self.port_num.get());
        Id { pair, space, kind, state, port, local, peer }
    }
}
