// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of the C API: their names for refusals, and the observer that is told of them.
//!
//! Without an observer a call costs one look at a null pointer; its arguments are not looked at.

use std::ffi::c_int;

use iwarp::faults;
use iwarp::observe::{self, SomeObserver, Value};
use iwarp_os::environment;
use once_cell::race::OnceBox;

use crate::log::last_errno;
use crate::{check, several, trace};

/// The observer of this process, once a device or a channel was made.
static OBSERVER: OnceBox<SomeObserver> = OnceBox::new();

/// Has calls told from now on, and refused by rule, if the user asks for that.
pub(crate) fn prepare() {
    // A wrong value is told of when the device is opened.
    if let Some(rules) = environment::variable("IWARP_FAULTS").and_then(|text| text.parse().ok()) {
        faults::install(&rules);
    }
    if let Some(observer) = several::all([trace::wanted(), check::wanted()]) {
        let _ = OBSERVER.set(Box::new(observer));
    }
}

/// The observer, for the options of devices.
#[inline]
pub(crate) fn observer() -> Option<&'static SomeObserver> {
    OBSERVER.get()
}

/// The value of a function that has done what it should.
pub(crate) const SUCCESS: Value = Value::Number(0);

/// The result of a function that returns 0 or an error number.
pub(crate) const fn outcome(number: c_int) -> Result<Value, c_int> {
    if number == 0 { Ok(SUCCESS) } else { Err(number) }
}

/// A call that has begun. It has no `Drop`, as threads may be cancelled in it.
#[derive(Clone, Copy, Debug)]
pub struct Call<const N: usize> {
    verb: &'static str,
    arguments: Option<[(&'static str, Value); N]>,
}

impl Call<0> {
    /// A part of a call of `verb`, which is told of elsewhere: for the words of a refusal.
    pub(crate) const fn part_of(verb: &'static str) -> Self {
        Self { verb, arguments: None }
    }
}

impl<const N: usize> Call<N> {
    /// A call of `verb`; `arguments` is asked for them if they are told. See [`called!`].
    #[inline]
    pub(crate) fn new(
        verb: &'static str,
        arguments: impl FnOnce() -> [(&'static str, Value); N],
    ) -> Self {
        let arguments = observer().is_some().then(arguments);
        if let Some(arguments) = &arguments {
            check::begins(verb, arguments);
        }
        Self { verb, arguments }
    }

    /// Name of the function.
    pub(crate) const fn verb(&self) -> &'static str {
        self.verb
    }

    /// A part of it, for the words of a refusal: the caller has the whole told.
    pub(crate) const fn part(&self) -> Call<0> {
        Call::part_of(self.verb)
    }

    /// The call ends with 0, or with another number and `errno` set, and returns that.
    pub(crate) fn returns(&self, result: c_int) -> c_int {
        self.ended(|| if result == 0 { Ok(SUCCESS) } else { Err(last_errno()) });
        result
    }

    /// The call ends with a number, or with `failed` and `errno` set, and returns that.
    pub(crate) fn returns_unless<T: Shown + PartialEq>(&self, failed: T, result: T) -> T {
        self.ended(|| if result == failed { Err(last_errno()) } else { Ok(result.value()) });
        result
    }

    /// The call ends with this.
    #[inline]
    pub(crate) fn ended(&self, result: impl FnOnce() -> Result<Value, c_int>) {
        if let Some(arguments) = &self.arguments {
            tell(&observe::Call::new(self.verb, arguments, result()));
        }
    }
}

#[cold]
fn tell(call: &observe::Call<'_>) {
    if let Some(observer) = observer() {
        observer.called(call);
    }
}

/// The [`Call`] of a function by its name and the names of its arguments:
/// `called!(ibv_destroy_qp(qp))`.
macro_rules! called {
    ($verb:ident($($argument:ident),*)) => {
        $crate::calls::Call::new(stringify!($verb), || {
            [$((stringify!($argument), $crate::calls::Shown::value(&$argument))),*]
        })
    };
}
pub(crate) use called;

/// Tells of a call that has ended with this result, where it is told. For functions that post and
/// poll, which name their arguments only then: `told!(ibv_poll_cq(cq, num_entries, wc), result)`.
macro_rules! told {
    ($verb:ident($($argument:ident),*), $result:expr) => {
        if $crate::calls::observer().is_some() {
            $crate::calls::called!($verb($($argument),*)).ended(|| $result);
        }
    };
}
pub(crate) use told;

/// An argument or a result as an observer sees it.
pub trait Shown {
    /// Its number, or the address that it is.
    fn value(&self) -> Value;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Shown for $number {
            fn value(&self) -> Value {
                Value::Number(*self as i64)
            }
        })*
    };
}

numbers! { u8 u16 u32 i32 i64 u64 usize isize }

impl Shown for () {
    fn value(&self) -> Value {
        Value::Nothing
    }
}

macro_rules! pointers {
    ($($pointer:ty => $place:expr;)*) => {
        $(impl<T> Shown for $pointer {
            fn value(&self) -> Value {
                let place: fn(&Self) -> usize = $place;
                Value::Pointer(place(self))
            }
        })*
    };
}

pointers! {
    *const T => |pointer| pointer.addr();
    *mut T => |pointer| pointer.addr();
    &T => |object| (&raw const **object).addr();
    &mut T => |object| (&raw const **object).addr();
    Option<&T> => |object| object.map_or(0, |object| (&raw const *object).addr());
    Option<&mut T> => |object| object.as_deref().map_or(0, |object| (&raw const *object).addr());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_of_any_kind_are_shown_by_their_address() {
        let mut octet = 7_u8;
        let place = Value::Pointer((&raw const octet).addr());
        assert_eq!([(&raw const octet).value(), (&raw mut octet).value()], [place; 2]);
        assert_eq!([Shown::value(&&octet), Some(&octet).value()], [place; 2]);
        assert_eq!([Shown::value(&&mut octet), Some(&mut octet).value()], [place; 2]);
        assert_eq!(None::<&u8>.value(), Value::Pointer(0));
    }

    #[test]
    fn an_argument_is_not_looked_at_where_none_is_told() {
        let call = Call::<1>::new("ibv_test", || unreachable!("no observer"));
        call.ended(|| unreachable!("no observer"));
        assert_eq!(call.verb(), "ibv_test");
    }
}
