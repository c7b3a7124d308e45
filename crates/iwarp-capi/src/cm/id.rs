// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_uint, c_void};
use std::io;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iwarp::cm::Id;
use iwarp_os::Heritable;

use super::abi::{
    ibv_ece, ibv_sa_path_rec, rdma_addr, rdma_addrinfo, rdma_cm_id, rdma_event_channel,
    rdma_ib_addr, rdma_route,
};
use super::addr;
use super::addrinfo::rdma_freeaddrinfo;
use super::carrier::Carrier;
use super::channel::CmChannel;
use super::groups::Joined;
use super::owner::Shared;
use crate::abi::flags::IBV_QPT_UD;
use crate::abi::{ibv_gid, ibv_qp_init_attr};
use crate::guard::Errno;
use crate::refuse::refuse;
use crate::verbs::{Listed, tell_of_heir};

/// An id as the program has it, and the library's part behind it, which a forked child makes anew.
#[repr(C)]
pub(super) struct Handle {
    abi: rdma_cm_id,
    pub(super) own: Heritable<CmId>,
}

/// The part of an id that is ours.
pub(super) struct CmId {
    /// The program's part, beside this one in the [`Handle`].
    abi: NonNull<rdma_cm_id>,
    pub(super) id: Id,
    pub(super) shared: Arc<Shared>,
    pub(super) listed: Listed,
    state: Mutex<CmIdState>,
}

/// The facts about earlier steps that a step needs.
pub(super) struct CmIdState {
    /// The program gave no channel: steps wait.
    pub(super) sync: bool,
    /// Reads of the peer's to serve, and of our own to have outstanding, where the program leaves
    /// it open.
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    /// Bytes that go before the program's private data when connecting.
    pub(super) connect_data: Vec<u8>,
    /// The attributes with which queue pairs of connections that come in are made.
    pub(super) qp_init_attr: Option<ibv_qp_init_attr>,
    /// The number that the program gave for a queue pair of its own.
    pub(super) qp_num: u32,
    /// Bears a connection whose queue pair is not of this device.
    pub(super) carrier: Option<Carrier>,
    pub(super) ack_timeout: Option<u8>,
    pub(super) local_ece: ibv_ece,
    pub(super) remote_ece: ibv_ece,
    pub(super) addrinfo: Resolution,
    /// The multicast groups that it has joined.
    pub(super) groups: Vec<Joined>,
    /// Its route is resolved.
    pub(super) is_routed: bool,
    /// The path record of the route, if there is one.
    pub(super) path: Option<Box<ibv_sa_path_rec>>,
}

/// State of `rdma_resolve_addrinfo`.
pub(super) enum Resolution {
    None,
    Done(*mut rdma_addrinfo),
}

impl Deref for CmId {
    type Target = rdma_cm_id;

    fn deref(&self) -> &rdma_cm_id {
        // SAFETY: made with this, in one allocation, and never moved out of it.
        unsafe { self.abi.as_ref() }
    }
}

impl Handle {
    /// # Safety
    ///
    /// The pointer is null or of an id that is not destroyed.
    pub(super) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Self, Errno> {
        // SAFETY: the caller's promise; `abi` is the first field.
        let handle = unsafe { id.cast::<Self>().as_ref() };
        handle.ok_or_else(|| refuse!(EINVAL, "the id is NULL"))
    }
}

// SAFETY: `abi` is the program's, which decides which threads use it.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl CmId {
    /// The id of `of`, seen from C.
    pub(super) fn make(
        of: Id,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: c_uint,
        qp_type: c_uint,
    ) -> *mut rdma_cm_id {
        let abi = rdma_cm_id {
            verbs: Cell::new(null_mut()),
            channel: Cell::new(channel),
            context: Cell::new(context),
            qp: Cell::new(null_mut()),
            route: UnsafeCell::new(rdma_route {
                addr: rdma_addr {
                    src: addr::empty(),
                    dst: addr::empty(),
                    ibaddr: rdma_ib_addr {
                        sgid: ibv_gid::default(),
                        dgid: ibv_gid::default(),
                        pkey: 0,
                    },
                },
                path_rec: null_mut(),
                num_paths: 0,
            }),
            ps,
            port_num: Cell::new(0),
            event: Cell::new(null_mut()),
            send_cq_channel: Cell::new(null_mut()),
            send_cq: Cell::new(null_mut()),
            recv_cq_channel: Cell::new(null_mut()),
            recv_cq: Cell::new(null_mut()),
            srq: Cell::new(null_mut()),
            pd: Cell::new(null_mut()),
            qp_type,
        };
        let state = CmIdState {
            sync: false,
            responder_resources: 0,
            initiator_depth: 0,
            connect_data: Vec::new(),
            qp_init_attr: None,
            qp_num: 0,
            carrier: None,
            ack_timeout: None,
            local_ece: NO_ECE,
            remote_ece: NO_ECE,
            addrinfo: Resolution::None,
            groups: Vec::new(),
            is_routed: false,
            path: None,
        };
        let shared = Shared::new();
        of.set_context(Arc::clone(&shared) as Arc<dyn Any + Send + Sync>);
        let place = Box::into_raw(Box::<Handle>::new_uninit());
        let made = place.cast::<rdma_cm_id>();
        shared.lead_to(made);
        let own = Self {
            // SAFETY: a box is nowhere at address 0.
            abi: unsafe { NonNull::new_unchecked(made) },
            id: of,
            shared,
            listed: Listed::new(),
            state: Mutex::new(state),
        };
        // SAFETY: just allocated for it.
        unsafe { place.cast::<Handle>().write(Handle { abi, own: Heritable::new(own) }) };
        made
    }

    /// A forked child's own id in place of its parent's, which has no connection.
    fn take_over(inherited: &Self) -> Result<Self, Errno> {
        let in_use = || {
            refuse!(EBADF, "a thread of the parent was just using the id at the fork: make another")
        };
        let parents = inherited.state.try_lock().map_err(|_| in_use())?;
        // SAFETY: the channel stays until its ids are gone.
        let channel = unsafe { CmChannel::of(inherited.channel.get())? };
        let id = Id::take_over(&channel, &inherited.id).map_err(|error| match error.kind() {
            io::ErrorKind::NotConnected => refuse!(
                EBADF,
                "the id has a connection, which is the parent's: a forked child has to make its own"
            ),
            io::ErrorKind::WouldBlock => in_use(),
            _ => Errno::from(error),
        })?;
        let shared = Shared::new();
        shared.lead_to(inherited.abi.as_ptr());
        id.set_context(Arc::clone(&shared) as Arc<dyn Any + Send + Sync>);
        let state = Mutex::new(parents.inherit());
        tell_of_heir("an id of the connection manager");
        Ok(Self { abi: inherited.abi, id, shared, listed: Listed::new(), state })
    }

    /// The id behind a pointer that the program has.
    ///
    /// # Errors
    ///
    /// `EINVAL` for null, `EBADF` where a forked child cannot go on with its parent's.
    ///
    /// # Safety
    ///
    /// The pointer is null or of an id that is not destroyed.
    pub(super) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Self, Errno> {
        // SAFETY: the caller's promise.
        let handle = unsafe { Handle::of(id)? };
        handle.own.get_or_make(Self::take_over)
    }

    /// Notes at a channel that the id listens and reports there.
    ///
    /// # Safety
    ///
    /// The pointer is null or was a channel at some time.
    pub(super) unsafe fn listen_at(&self, channel: *mut rdma_event_channel) {
        let take_over = |id: *mut rdma_cm_id| {
            // SAFETY: not destroyed, as it stands in the channel's list.
            let _ = unsafe { Self::of(id) };
        };
        // SAFETY: the caller's promise.
        unsafe { CmChannel::enter(channel, self.as_abi(), take_over) };
    }

    pub(super) const fn as_abi(&self) -> *mut rdma_cm_id {
        self.abi.as_ptr()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CmIdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it is for datagrams, not for connections.
    pub(super) fn has_datagrams(&self) -> bool {
        self.qp_type == IBV_QPT_UD
    }
}

const NO_ECE: ibv_ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };

impl CmIdState {
    /// The state in a forked child: the settings of the program. The rest is the parent's.
    fn inherit(&self) -> Self {
        Self {
            sync: self.sync,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            connect_data: self.connect_data.clone(),
            qp_init_attr: self.qp_init_attr,
            qp_num: 0,
            carrier: None,
            ack_timeout: self.ack_timeout,
            local_ece: self.local_ece,
            remote_ece: NO_ECE,
            addrinfo: Resolution::None,
            groups: Vec::new(),
            is_routed: false,
            path: None,
        }
    }
}

impl Drop for CmIdState {
    fn drop(&mut self) {
        if let Resolution::Done(info) = self.addrinfo {
            rdma_freeaddrinfo(info);
        }
    }
}
