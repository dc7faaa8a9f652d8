//! The C ABI of Hawser, declared as `hawser.h` does. What each function expects and gives is said there and in its man page.
#![no_std]

#[rustfmt::skip]
mod bindings;

pub use bindings::*;
