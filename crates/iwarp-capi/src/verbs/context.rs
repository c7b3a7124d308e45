// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening the device.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use iwarp::{Device, Log, Options};
use iwarp_os::{Heritable, PerProcess};

use super::ah::Handles;
use super::book::Book;
use super::imports::Imports;
use super::object::Counts;
use super::{advise, cq_ex, dm, list, mr, mw, pd, poll, post, qp, query, srq};
use crate::abi::{Op, Plain, ibv_context, ibv_context_ops, ibv_device, verbs_context_head};
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// A context that a program has open. Many can be open; they share one engine. The program's
/// pointer holds it, and so does each object that was made with it.
#[repr(C)]
pub struct Context {
    abi: ibv_context,
    /// A forked child has its own in its place.
    device: Heritable<Device>,
    /// Asynchronous events that were handed out.
    pub(crate) book: Arc<Book>,
    /// Its address handles.
    pub(crate) handles: Handles,
    own: Weak<Whole>,
    /// The program has closed it; objects of it may be left.
    closed: AtomicBool,
    imports: Arc<Imports>,
    /// The numbers of objects that it has.
    pub(crate) counts: Arc<Counts>,
    /// A descriptor that programs may look at, and by which the context can be imported.
    _cmd_fd: OwnedFd,
}

/// As the header wants it: the newer part lies before what the program has a pointer to.
#[repr(C)]
struct Whole {
    head: verbs_context_head,
    context: Context,
}

/// Keeps a context for an object of it, also after the program has closed it.
#[derive(Clone)]
pub(crate) struct Held {
    whole: Arc<Whole>,
}

impl Held {
    /// The context.
    pub(crate) fn get(&self) -> &Context {
        &self.whole.context
    }
}

const _: () = assert!(offset_of!(Whole, context) == size_of::<verbs_context_head>());

impl Context {
    fn open(device: *mut ibv_device) -> Result<Arc<Whole>, Errno> {
        let own = engine()?.named_sibling(list::place(device))?;
        let (imports, token) = Imports::new(list::place(device))?;
        let cmd_fd = match token {
            Some(token) => token,
            None => own.async_fd().try_clone_to_owned()?,
        };
        Ok(Self::with(device, own, imports, cmd_fd))
    }

    fn with(
        device: *mut ibv_device,
        own: Device,
        imports: Arc<Imports>,
        cmd_fd: OwnedFd,
    ) -> Arc<Whole> {
        let place = imports.place();
        let abi = ibv_context {
            device,
            ops: ops(),
            cmd_fd: cmd_fd.as_raw_fd(),
            async_fd: own.async_fd().as_raw_fd(),
            num_comp_vectors: c_int::try_from(own.attributes().num_comp_vectors).unwrap_or(1),
            // Says that the newer part exists.
            abi_compat: std::ptr::without_provenance_mut(usize::MAX),
            ..ibv_context::zeroed()
        };
        Arc::new_cyclic(|whole| {
            let context = Self {
                abi,
                device: Heritable::new(own),
                book: Arc::default(),
                handles: Handles::default(),
                own: Weak::clone(whole),
                closed: AtomicBool::new(false),
                imports,
                counts: Arc::new(Counts::new(place)),
                _cmd_fd: cmd_fd,
            };
            Whole { head: head(), context }
        })
    }

    /// For an object that points to it.
    ///
    /// # Errors
    ///
    /// `EINVAL` where it is being freed, which no right program sees.
    pub(crate) fn hold(&self) -> Result<Held, Errno> {
        Ok(Held {
            whole: self
                .own
                .upgrade()
                .ok_or_else(|| refuse!(EINVAL, "the context is being closed"))?,
        })
    }

    /// The pointer that the program knows it by.
    pub fn as_abi(&self) -> *mut ibv_context {
        (&raw const self.abi).cast_mut()
    }

    /// True if both are one context.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }

    /// The context behind a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is one of [`Self::as_abi`], and the context is open.
    pub unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: the caller's promise; `abi` is the first field.
        unsafe { &*context.cast::<Self>() }
    }

    /// The device behind it, which a forked child opens anew when it first needs it.
    pub fn device(&self) -> &Device {
        self.device.get_or_make_or_nearest(|inherited| {
            let own = engine()?.take_over(inherited)?;
            tell_of_heir("a device context");
            Ok::<_, Errno>(own)
        })
    }

    /// The device behind it, or the parent's in a forked child that has not used it: for calls that end
    /// the use of something.
    pub(crate) fn device_as_it_is(&self) -> &Device {
        self.device.nearest()
    }

    /// Its objects that can be imported.
    pub(crate) fn imports(&self) -> &Imports {
        &self.imports
    }

    /// A number for an object that cannot be imported.
    pub(crate) fn next_handle(&self) -> u32 {
        self.imports.next_handle()
    }
}

/// The one engine of this process, which stays once the program has opened a device.
pub(crate) fn engine() -> Result<Device, Errno> {
    static ENGINE: PerProcess<Mutex<Option<Device>>> = PerProcess::new();

    let mut engine = ENGINE.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*engine {
        return Ok(device.clone());
    }
    let device = Device::open_with(Options::for_any_program()).inspect_err(|error| {
        guard::say(Log::Error, format_args!("{error}"));
    })?;
    Ok(engine.insert(device).clone())
}

/// A forked child goes on with an object of its parent's.
#[cold]
pub(crate) fn tell_of_heir(object: &str) {
    guard::say(
        Log::Info,
        format_args!(
            "this forked process goes on with {object} of its parent's: it has its own behind the \
             same pointer from now on"
        ),
    );
}

/// The contexts that connection manager ids have: one of each device that was wanted so far. A
/// forked child has its parent's as well: the ids with which it goes on have them.
static SHARED: PerProcess<Mutex<Vec<Shared>>> = PerProcess::new();

fn shared() -> MutexGuard<'static, Vec<Shared>> {
    SHARED.get_or_copy().lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Shared {
    place: usize,
    context: *mut Context,
    /// It stays even if a program closes it, which it must not.
    _held: Held,
}

// SAFETY: a context may be used by all threads.
unsafe impl Send for Shared {}

/// The context that connection manager ids have which are on the device at `place` of the list. It
/// is never closed.
///
/// # Errors
///
/// As for `ibv_open_device`.
pub fn shared_context(place: usize) -> Result<*mut ibv_context, Errno> {
    let mut all = shared();
    if let Some(shared) = all.iter().find(|shared| shared.place == place) {
        return Ok(shared.context.cast());
    }
    let device = list::devices()?.get(place);
    let device = device.ok_or_else(|| refuse!(EINVAL, "there is no device {place}"))?;
    let whole = Context::open(device.as_abi())?;
    let _held = whole.context.hold()?;
    let context = hand_out(whole);
    all.push(Shared { place, context, _held });
    Ok(context.cast())
}

/// Returns the first finding of `find` in these contexts.
pub(super) fn in_shared<R>(mut find: impl FnMut(&Context) -> Option<R>) -> Option<R> {
    let mut place = 0;
    loop {
        let all = shared();
        let context = all.get(place)?.context;
        drop(all);
        // SAFETY: it is never closed.
        let found = find(unsafe { &*context });
        if found.is_some() {
            return found;
        }
        place += 1;
    }
}

/// `ibv_open_device`
pub extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    guard::prepare();
    guard::object(|| Ok(hand_out(Context::open(device)?).cast()))
}

/// `ibv_import_device`: another context with the objects of one, by a duplicate of its `cmd_fd`,
/// which it owns from then on. Contexts of other processes cannot be had: their objects are there
/// and nowhere else.
pub extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    guard::prepare();
    guard::object(|| {
        if cmd_fd < 0 {
            return Err(refuse!(EBADF, "cmd_fd is {cmd_fd}"));
        }
        // SAFETY: the program passes a descriptor that stays open during the call; one that is not
        // open makes a system call fail.
        let imports = Imports::of(unsafe { BorrowedFd::borrow_raw(cmd_fd) })?;
        let device = list::devices()?.get(imports.place());
        let device = device.ok_or_else(|| refuse!(EINVAL, "its device is not there"))?.as_abi();
        let own = engine()?.named_sibling(imports.place())?;
        // SAFETY: the program gives it away where this succeeds, and nothing fails from here on.
        let cmd_fd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
        Ok(hand_out(Context::with(device, own, imports, cmd_fd)).cast())
    })
}

/// Hands out the pointer that the program gets: to the part that it knows, which holds all of it.
fn hand_out(whole: Arc<Whole>) -> *mut Context {
    let whole = Arc::into_raw(whole);
    // SAFETY: just made; the pointer keeps the right to all of it.
    unsafe { (&raw const (*whole).context).cast_mut() }
}

/// `ibv_close_device`. Imports that are left point to the context: they work on, and the last to be
/// destroyed frees it. The program is not told of them, here or with rdma-core.
pub extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    guard::minus_one(|| {
        // SAFETY: the program has it from `ibv_open_device`.
        if unsafe { Context::of(context) }.closed.swap(true, Ordering::Relaxed) {
            return Err(refuse!(EINVAL, "the context is closed already"));
        }
        let whole = context.wrapping_byte_sub(offset_of!(Whole, context)).cast::<Whole>();
        // SAFETY: `hand_out` made the pointer, which is given up once.
        drop(unsafe { Arc::from_raw(whole) });
        Ok(0)
    })
}

/// The functions that inline functions of the header call.
fn ops() -> ibv_context_ops {
    ibv_context_ops {
        alloc_mw: mw::alloc_mw as Op,
        bind_mw: mw::bind_mw as Op,
        dealloc_mw: mw::dealloc_mw as Op,
        poll_cq: poll::poll_cq as Op,
        req_notify_cq: poll::req_notify_cq as Op,
        post_srq_recv: post::post_srq_recv as Op,
        post_send: post::post_send as Op,
        post_recv: post::post_recv as Op,
        _compat_query_port: query::ibv_query_port as Op,
        ..ibv_context_ops::zeroed()
    }
}

/// The functions that newer inline functions call; one that is null is not supported.
fn head() -> verbs_context_head {
    verbs_context_head {
        reg_mr_ex: mr::ibv_reg_mr_ex as Op,
        query_port: query::query_port as Op,
        advise_mr: advise::advise_mr as Op,
        reg_dm_mr: dm::reg_dm_mr as Op,
        alloc_dm: dm::alloc_dm as Op,
        free_dm: dm::free_dm as Op,
        alloc_parent_domain: pd::alloc_parent_domain as Op,
        alloc_td: pd::alloc_td as Op,
        dealloc_td: pd::dealloc_td as Op,
        modify_cq: cq_ex::modify_cq as Op,
        query_rt_values: query::query_rt_values as Op,
        create_cq_ex: cq_ex::create_cq_ex as Op,
        query_device_ex: query::query_device_ex as Op,
        create_qp_ex: qp::create_qp_ex as Op,
        get_srq_num: std::ptr::null(),
        create_srq_ex: srq::create_srq_ex as Op,
        sz: size_of::<verbs_context_head>() + size_of::<ibv_context>(),
        ..verbs_context_head::zeroed()
    }
}
