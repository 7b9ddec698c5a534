//! Traced functions: a function of any signature is wrapped into one that records each call.

use std::ffi::{c_int, c_uint};

use super::record::{About, Clock, Raw, record};

/// A call that can be traced.
pub(crate) trait Call {
    const ABOUT: About;

    /// The address of the function that implements it.
    fn plain() -> *mut ();
}

/// A type of arguments and results.
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

/// A function with the C calling convention.
pub(crate) trait Function: Copy {
    /// The function that calls [`Call::plain`], which must be of this type, and records the call.
    fn traced<C: Call>() -> Self;

    fn address(self) -> *mut ();
}

/// Implements [`Function`] for both ABIs. `C-unwind` functions are cancellation points: they have nothing to drop.
macro_rules! functions {
    ($( ($($type:ident $value:ident),*) )+) => {
        functions! { "C" $( ($($type $value),*) )+ }
        functions! { "C-unwind" $( ($($type $value),*) )+ }
    };
    ($abi:literal $( ($($type:ident $value:ident),*) )+) => {$(
        impl<R: Value, $($type: Value),*> Function for unsafe extern $abi fn($($type),*) -> R {
            fn traced<C: Call>() -> Self {
                unsafe extern $abi fn traced<C: Call, R: Value, $($type: Value),*>($($value: $type),*) -> R {
                    // SAFETY: it is a function of this type: `install` and the tables take a function of the same type,
                    // which the compiler checks.
                    let plain: unsafe extern $abi fn($($type),*) -> R = unsafe { std::mem::transmute(C::plain()) };
                    let clock = Clock::start();
                    // SAFETY: the program's arguments.
                    let result = unsafe { plain($($value),*) };
                    let took = clock.stop();
                    record(&C::ABOUT, &[$($value.raw()),*], result.raw(), took);
                    result
                }
                traced::<C, R, $($type),*>
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
