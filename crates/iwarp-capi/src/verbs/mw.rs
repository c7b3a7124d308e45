// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};

use iwarp::verbs::WindowType;
use iwarp::{Access, Bind, MemoryWindow, SendOp, Stag};

use super::counts::Kind;
use super::object::Object;
use super::pd::Pd;
use super::{Life, mr};
use crate::abi::flags::{IBV_MW_TYPE_1, IBV_MW_TYPE_2};
use crate::abi::{ibv_mw, ibv_mw_bind_info};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    abi: ibv_mw,
    object: Object,
    window: MemoryWindow,
    /// The key it has, or will have once the work requests that were posted are done. The program
    /// sees it too, in the part that it may write to.
    present: Cell<Stag>,
    _pd: Life,
}

impl Mw {
    pub(crate) fn present(&self) -> Stag {
        self.present.get()
    }

    /// The key that a bind gives it. Of the key that a program asks for, the last eight bits count;
    /// the others are the window's place, as with every device.
    pub(crate) fn key(&self, asked: u32) -> Stag {
        const CHOSEN: u32 = 0xff;

        Stag(self.present().0 & !CHOSEN | asked & CHOSEN)
    }

    /// The key that the next bind gives one of type 1, which gets a new one each time.
    pub(super) fn next_key(&self) -> Result<Stag, Errno> {
        Ok(self.window.next_stag()?)
    }

    /// The operation that binds it, under the key `new_stag`.
    pub(super) fn bind_op(&self, new_stag: Stag, info: &ibv_mw_bind_info) -> Result<SendOp, Errno> {
        // SAFETY: the program passes a region of its own, or null where it binds to nothing.
        let region = unsafe { info.mr.as_ref() };
        // Programs name local rights too, which a window has no use for.
        let access = mr::access(info.mw_access_flags)? - Access::LOCAL_WRITE;
        Ok(SendOp::Bind(Bind {
            window: self.present(),
            new_stag,
            region: Stag(region.map_or(0, |region| region.lkey)),
            addr: info.addr,
            length: info.length,
            access,
        }))
    }

    /// A bind under this key was posted.
    pub(crate) fn bound_as(&self, stag: Stag) {
        self.present.set(stag);
        self.abi.rkey.set(stag.0);
    }
}

/// `ibv_alloc_mw`
pub(crate) extern "C" fn alloc_mw(pd: &Pd, kind: c_uint) -> *mut Mw {
    guard::object(called!(ibv_alloc_mw(pd, kind)), || {
        pd.check()?;
        let window_type = match kind {
            IBV_MW_TYPE_1 => WindowType::One,
            IBV_MW_TYPE_2 => WindowType::TwoB,
            _ => return Err(refuse!(EOPNOTSUPP, "{kind} is no type of memory windows (1 or 2)")),
        };
        let window = pd.domain().allocate_window(window_type)?;
        let stag = window.stag();
        let object = Object::new(pd.context(), Kind::Mw)?;
        Ok(Box::into_raw(Box::new(Mw {
            abi: ibv_mw {
                context: pd.context().as_abi(),
                pd: pd.as_abi(),
                rkey: Cell::new(stag.0),
                handle: object.handle(),
                r#type: kind,
            },
            object,
            window,
            present: Cell::new(stag),
            _pd: pd.life.clone(),
        })))
    })
}

/// `ibv_dealloc_mw`
pub(crate) extern "C" fn dealloc_mw(mw: *mut Mw) -> c_int {
    guard::errno(called!(ibv_dealloc_mw(mw)), || {
        // SAFETY: the program has it from `ibv_alloc_mw`.
        let object = unsafe { &*mw };
        object.object.check(object.abi.context, object.abi.handle)?;
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(mw) });
        Ok(())
    })
}
