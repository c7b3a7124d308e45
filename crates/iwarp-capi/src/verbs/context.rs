// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts: the device as a program has it open.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use iwarp::{Device, Log, Options};
use iwarp_os::{Heritable, PerProcess};

use super::book::Book;
use super::counts::Counts;
use super::handles::Handles;
use super::imports::Imports;
use crate::abi::{Plain, ibv_context, ibv_context_ops, ibv_device, verbs_context_head};
use crate::calls;
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

/// The functions that inline functions of the header call, the older and the newer ones.
pub(super) struct Functions {
    pub(super) ops: ibv_context_ops,
    pub(super) head: verbs_context_head,
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

    /// Hands out the pointer that the program gets: to the part that it knows, which holds all of
    /// it.
    pub(super) fn hand_out(self) -> *mut Context {
        let whole = Arc::into_raw(self.whole);
        // SAFETY: just made; the pointer keeps the right to all of it.
        unsafe { (&raw const (*whole).context).cast_mut() }
    }

    /// Takes back the pointer that the program got.
    ///
    /// # Errors
    ///
    /// `EINVAL` where it was taken back before.
    ///
    /// # Safety
    ///
    /// [`Self::hand_out`] made the pointer, and the context is there.
    pub(super) unsafe fn take_back(context: *mut ibv_context) -> Result<Self, Errno> {
        // SAFETY: the caller's promise.
        if unsafe { Context::of(context) }.closed.swap(true, Ordering::Relaxed) {
            return Err(refuse!(EINVAL, "the context is closed already"));
        }
        let whole = context.wrapping_byte_sub(offset_of!(Whole, context)).cast::<Whole>();
        // SAFETY: the caller's promise; the pointer is given up once.
        Ok(Self { whole: unsafe { Arc::from_raw(whole) } })
    }
}

const _: () = assert!(offset_of!(Whole, context) == size_of::<verbs_context_head>());

impl Context {
    /// A context of the device at `device`, for a program that calls `functions`.
    pub(super) fn make(
        device: *mut ibv_device,
        own: Device,
        imports: Arc<Imports>,
        cmd_fd: OwnedFd,
        functions: Functions,
    ) -> Held {
        let place = imports.place();
        let abi = ibv_context {
            device,
            ops: functions.ops,
            cmd_fd: cmd_fd.as_raw_fd(),
            async_fd: own.async_fd().as_raw_fd(),
            num_comp_vectors: c_int::try_from(own.attributes().num_comp_vectors).unwrap_or(1),
            // Says that the newer part exists.
            abi_compat: std::ptr::without_provenance_mut(usize::MAX),
            ..ibv_context::zeroed()
        };
        let whole = Arc::new_cyclic(|whole| {
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
            Whole { head: functions.head, context }
        });
        Held { whole }
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

    /// The device behind it, or the parent's in a forked child that has not used it: for calls that
    /// end the use of something.
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
    let mut options = Options::for_any_program();
    if let Some(observer) = calls::observer() {
        options = options.observer(observer.clone());
    }
    let device = Device::open_with(options).inspect_err(|error| {
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
