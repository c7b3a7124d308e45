// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ids: made, bound, resolved, destroyed.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use iwarp::Log;
use iwarp::cm::{ConnectionState, Id, PortSpace};
use iwarp_os::{Heritable, ProcessOwned};

use super::abi::{
    RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, ibv_ece, ibv_sa_path_rec, rdma_addr,
    rdma_addrinfo, rdma_cm_id, rdma_event_channel, rdma_ib_addr, rdma_route,
};
use super::channel::{CmChannel, complete, release_event};
use super::connect::Carrier;
use super::multicast::Joined;
use super::{addr, device, ports};
use crate::abi::flags::{IBV_QPT_RC, IBV_QPT_UD};
use crate::abi::{ibv_gid, ibv_qp_init_attr};
use crate::guard::{self, Errno};
use crate::log::{PATIENCE, say};
use crate::refuse::{given, refuse};
use crate::verbs::{Listed, tell_of_heir};

/// An id as the program has it, and the library's part behind it, which a forked child makes anew.
#[repr(C)]
struct Handle {
    abi: rdma_cm_id,
    own: Heritable<CmId>,
}

/// The part of an id that is ours.
pub struct CmId {
    /// The program's part, beside this one in the [`Handle`].
    abi: NonNull<rdma_cm_id>,
    pub(super) id: Id,
    pub(super) shared: Arc<Shared>,
    pub(super) listed: Listed,
    state: Mutex<State>,
}

/// The facts about earlier steps that a step needs.
pub(super) struct State {
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
    path: Option<Box<ibv_sa_path_rec>>,
}

/// State of `rdma_resolve_addrinfo`.
pub(super) enum Resolution {
    None,
    Done(*mut rdma_addrinfo),
}

/// The part of an id that events and their acknowledgement need; the id may be gone.
pub(super) struct Shared {
    id: AtomicPtr<rdma_cm_id>,
    events: ProcessOwned<Events>,
}

/// Events of an id that the program has.
#[derive(Default)]
struct Events {
    count: Mutex<Count>,
    acknowledged: Condvar,
}

impl Events {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Count {
    handed_out: u32,
    gone: bool,
}

impl Shared {
    fn new() -> Arc<Self> {
        let events = ProcessOwned::new(Events::default());
        Arc::new(Self { id: AtomicPtr::new(null_mut()), events })
    }

    /// The id, which stays until an event that is to be made is acknowledged; `None` when it is
    /// being destroyed, or this is a forked child.
    pub(super) fn hand_out(&self) -> Option<*mut rdma_cm_id> {
        let mut count = self.events.alive()?.count();
        if count.gone {
            return None;
        }
        count.handed_out += 1;
        Some(self.id.load(Ordering::Acquire))
    }

    /// An event was acknowledged.
    pub(super) fn acknowledge(&self) {
        let Some(events) = self.events.alive() else { return };
        let mut count = events.count();
        count.handed_out = count.handed_out.saturating_sub(1);
        drop(count);
        events.acknowledged.notify_all();
    }

    /// Waits until all events are acknowledged.
    pub(super) fn settle(&self) {
        let Some(events) = self.events.alive() else { return };
        let mut count = events.count();
        let mut told = false;
        while count.handed_out > 0 {
            let waited = events.acknowledged.wait_timeout(count, PATIENCE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            count = again;
            let pending = count.handed_out;
            if timeout.timed_out() && pending > 0 && !std::mem::replace(&mut told, true) {
                drop(count);
                say(
                    Log::Warn,
                    format_args!(
                        "rdma_destroy_id waits until the program has acknowledged {pending} \
                         event(s) of the id that it took with rdma_get_cm_event: call \
                         rdma_ack_cm_event for each"
                    ),
                );
                count = events.count();
            }
        }
    }

    fn retire(&self) {
        if let Some(events) = self.events.alive() {
            events.count().gone = true;
        }
    }
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
    unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Self, Errno> {
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
        let state = State {
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
        shared.id.store(made, Ordering::Release);
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
        shared.id.store(inherited.abi.as_ptr(), Ordering::Release);
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

    pub(super) const fn as_abi(&self) -> *mut rdma_cm_id {
        self.abi.as_ptr()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it is for datagrams, not for connections.
    pub(super) fn has_datagrams(&self) -> bool {
        self.qp_type == IBV_QPT_UD
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
            mtu: super::attr::PATH_MTU as u8,
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

const NO_ECE: ibv_ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
/// Selector of a value in a path record.
const EXACTLY: u8 = 2;
/// `IBV_RATE_10_GBPS`
const RATE_10_GBPS: u8 = 3;

/// Makes an id; `null` for a channel makes it synchronous.
pub(super) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: c_uint,
    qp_type: c_uint,
) -> Result<*mut rdma_cm_id, Errno> {
    if ![RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_IB].contains(&ps) {
        return Err(refuse!(
            EPROTONOSUPPORT,
            "the port space {ps:#x} is not known (RDMA_PS_TCP ...)"
        ));
    }
    let sync = channel.is_null();
    let channel = if sync { CmChannel::create()? } else { channel };
    // SAFETY: the program's channel, which it has not destroyed, or the one just made.
    let made = unsafe { CmChannel::of(channel) }.and_then(|channel| {
        let id = match space(ps).filter(|_| qp_type == IBV_QPT_UD) {
            Some(space) => Id::for_datagrams(&channel, space)?,
            None => Id::new(&channel)?,
        };
        Ok(id)
    });
    let id = match made {
        Ok(id) => id,
        Err(error) => {
            if sync {
                // SAFETY: just made.
                unsafe { CmChannel::destroy(channel) };
            }
            return Err(error);
        }
    };
    let made = CmId::make(id, channel, context, ps, qp_type);
    // SAFETY: just made.
    unsafe { CmId::of(made)? }.state().sync = sync;
    Ok(made)
}

/// The port space of datagram services.
fn space(ps: c_uint) -> Option<PortSpace> {
    match ps {
        RDMA_PS_UDP => Some(PortSpace::Udp),
        RDMA_PS_IPOIB => Some(PortSpace::Ipoib),
        RDMA_PS_IB => Some(PortSpace::Ib),
        _ => None,
    }
}

/// `rdma_create_id`
pub extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: Option<&mut *mut rdma_cm_id>,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    guard::prepare();
    guard::minus_one(|| {
        let place = given!(id)?;
        let datagram = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;
        let qp_type = if datagram { IBV_QPT_UD } else { IBV_QPT_RC };
        *place = create(channel, context, ps, qp_type)?;
        Ok(0)
    })
}

/// `rdma_destroy_id`: waits until the program has acknowledged the id's events.
pub extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    guard::minus_one(|| {
        // SAFETY: the program's id.
        let handle = unsafe { Handle::of(id)? };
        // In a forked child that has not used it, it is the parent's.
        let Some(this) = handle.own.get() else { return Ok(0) };
        this.id.close();
        release_event(this);
        this.shared.retire();
        this.shared.settle();
        let channel = this.channel.get();
        let sync = this.state().sync;
        // SAFETY: the channel was one, and its memory stays.
        unsafe { CmChannel::leave(channel, id) };
        // SAFETY: made by `CmId::make`; no event leads to it any more, and the program promises
        // not to use it any more.
        drop(unsafe { Box::from_raw(id.cast::<Handle>()) });
        if sync {
            // SAFETY: the id's own, which the program does not know.
            unsafe { CmChannel::destroy(channel) };
        }
        Ok(0)
    })
}

impl State {
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

impl Drop for State {
    fn drop(&mut self) {
        if let Resolution::Done(info) = self.addrinfo {
            super::addrinfo::rdma_freeaddrinfo(info);
        }
    }
}

/// `rdma_bind_addr`
pub extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *const libc::sockaddr) -> c_int {
    guard::minus_one(|| {
        // SAFETY: the program's id and address.
        let (id, addr) = unsafe { (CmId::of(id)?, addr::read(addr)?) };
        ports::share();
        id.id.bind(addr).map_err(Errno::from).map_err(|error| match error {
            // The kernel's error for a port that is in use at one address, where all are wanted.
            error if error.number() == libc::EADDRINUSE && addr.ip().is_unspecified() => {
                error.with_number(libc::EADDRNOTAVAIL)
            }
            error => error,
        })?;
        // To the kernel loopback is any address: no device yet. libfabric relies on that to tell
        // its users real addresses.
        if !addr.ip().is_unspecified() && !addr.ip().is_loopback() {
            device::enter(id)?;
        }
        id.show_addresses();
        Ok(0)
    })
}

/// `rdma_resolve_addr`; ends in `RDMA_CM_EVENT_ADDR_RESOLVED` or `RDMA_CM_EVENT_ADDR_ERROR`.
pub extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *const libc::sockaddr,
    dst: *const libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let begun = guard::minus_one(|| {
        // SAFETY: the program's id and addresses.
        let (id, dst) = unsafe { (CmId::of(id)?, addr::read(dst)?) };
        // SAFETY: likewise.
        let src = if src.is_null() { None } else { Some(unsafe { addr::read(src)? }) };
        resolve_addr(id, src, dst)?;
        Ok(0)
    });
    if begun == 0 { complete(id) } else { begun }
}

fn resolve_addr(id: &CmId, src: Option<SocketAddr>, dst: SocketAddr) -> Result<(), Errno> {
    // SAFETY: as in `show_addresses`; no event has made another thread look at it yet.
    unsafe { &mut *id.route.get() }.addr.dst = addr::storage(dst);
    // An unspecified source leaves the choice to us, but may say the port.
    let src = src.filter(|src| !src.ip().is_unspecified() || src.port() != 0);
    Ok(id.id.resolve_addr(src, dst)?)
}

/// `rdma_resolve_route`; ends in `RDMA_CM_EVENT_ROUTE_RESOLVED`.
pub extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    let begun = guard::minus_one(|| {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        id.id.resolve_route()?;
        Ok(0)
    });
    if begun == 0 { complete(id) } else { begun }
}

/// `rdma_listen`
pub extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    guard::minus_one(|| {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        ports::share();
        id.id.listen(u32::try_from(backlog).unwrap_or(0))?;
        // SAFETY: the channel stays until its ids are gone.
        unsafe { CmChannel::enter(id.channel.get(), id.as_abi()) };
        id.show_addresses();
        Ok(0)
    })
}

/// `rdma_migrate_id`: events that wait go along. Returns when those that the program has are
/// acknowledged.
pub extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    guard::minus_one(|| {
        // SAFETY: the program's id.
        migrate(unsafe { CmId::of(id)? }, channel)?;
        Ok(0)
    })
}

pub(super) fn migrate(id: &CmId, channel: *mut rdma_event_channel) -> Result<(), Errno> {
    let was_sync = id.state().sync;
    let sync = channel.is_null();
    if was_sync && sync {
        return Err(refuse!(EINVAL, "the id has no channel already"));
    }
    let channel = if sync { CmChannel::create()? } else { channel };
    // SAFETY: the program's channel, which it has not destroyed, or the one just made.
    id.id.migrate(&unsafe { CmChannel::of(channel)? });
    if was_sync {
        release_event(id);
        // SAFETY: the id's own, which the program does not know.
        unsafe { CmChannel::destroy(id.channel.get()) };
    }
    id.state().sync = sync;
    // SAFETY: both were channels, and their memory stays.
    unsafe {
        CmChannel::leave(id.channel.get(), id.as_abi());
        if id.id.state() == ConnectionState::Listening {
            CmChannel::enter(channel, id.as_abi());
        }
    }
    id.channel.set(channel);
    id.shared.settle();
    Ok(())
}

/// `rdma_get_src_port`: in network order.
pub extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    port_of(id, |addr| &addr.src)
}

/// `rdma_get_dst_port`: in network order.
pub extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    port_of(id, |addr| &addr.dst)
}

fn port_of(id: *mut rdma_cm_id, which: fn(&rdma_addr) -> &libc::sockaddr_storage) -> u16 {
    // A forked child that only asks for the address takes the id over, as by any other call: a peer
    // that learns the address may connect at once. The address is told even if the child cannot
    // have the id.
    // SAFETY: the program's id.
    let _ = unsafe { CmId::of(id) };
    // SAFETY: the program's id, and as in `show_addresses`.
    port(which(unsafe { &(*(*id).route.get()).addr }))
}

fn port(storage: &libc::sockaddr_storage) -> u16 {
    // SAFETY: a `sockaddr_storage` is large enough for any address.
    unsafe { addr::read((&raw const *storage).cast()) }.map_or(0, |addr| addr.port().to_be())
}
