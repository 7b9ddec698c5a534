//! A function of any signature becomes one that tells of each call.

use std::ffi::{c_int, c_uint};

use super::record::{About, Clock, record};

/// What is known about a call that can be traced.
pub(crate) trait Call {
    const ABOUT: About;

    /// The function that does it, by its address.
    fn plain() -> *mut ();
}

/// An argument or result, as it was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    Nothing,
    Signed(i64),
    Unsigned(u64),
    Pointer(usize),
}

/// Types of arguments and results.
pub(crate) trait Value: Copy {
    fn raw(self) -> Raw;
}

impl Value for () {
    fn raw(self) -> Raw {
        Raw::Nothing
    }
}

macro_rules! numbers {
    ($( $kind:ident: $($type:ty)+; )+) => {$($(
        impl Value for $type {
            #[allow(clippy::unnecessary_cast, reason = "one of them is that type already")]
            fn raw(self) -> Raw {
                Raw::$kind(self as _)
            }
        }
    )+)+};
}

numbers! {
    Signed: c_int i64 isize;
    Unsigned: u8 u16 c_uint u64 usize;
}

impl<T> Value for *const T {
    fn raw(self) -> Raw {
        Raw::Pointer(self.addr())
    }
}

impl<T> Value for *mut T {
    fn raw(self) -> Raw {
        Raw::Pointer(self.expose_provenance())
    }
}

/// Functions of C's calling convention.
pub(crate) trait Function: Copy {
    /// The function that does what [`Call::plain`] does, which must be of this type, and tells of it.
    fn telling<C: Call>() -> Self;

    fn address(self) -> *mut ();
}

/// Of `C-unwind` are functions in which a thread may be cancelled: nothing in them has to be dropped.
macro_rules! functions {
    ($( ($($type:ident $value:ident),*) )+) => {
        functions! { "C" $( ($($type $value),*) )+ }
        functions! { "C-unwind" $( ($($type $value),*) )+ }
    };
    ($abi:literal $( ($($type:ident $value:ident),*) )+) => {$(
        impl<R: Value, $($type: Value),*> Function for unsafe extern $abi fn($($type),*) -> R {
            fn telling<C: Call>() -> Self {
                unsafe extern $abi fn telling<C: Call, R: Value, $($type: Value),*>($($value: $type),*) -> R {
                    // SAFETY: it is a function of this type: `install` and the tables take one of each, and the compiler
                    // compares them.
                    let plain: unsafe extern $abi fn($($type),*) -> R = unsafe { std::mem::transmute(C::plain()) };
                    let clock = Clock::start();
                    // SAFETY: the arguments are the program's own.
                    let result = unsafe { plain($($value),*) };
                    let took = clock.stop();
                    record(&C::ABOUT, &[$($value.raw()),*], result.raw(), took);
                    result
                }
                telling::<C, R, $($type),*>
            }

            fn address(self) -> *mut () {
                self as *mut ()
            }
        }
    )+};
}

functions! {
    ()
    (A a)
    (A a, B b)
    (A a, B b, D d)
    (A a, B b, D d, E e)
    (A a, B b, D d, E e, F f)
    (A a, B b, D d, E e, F f, G g)
    (A a, B b, D d, E e, F f, G g, H h)
}
