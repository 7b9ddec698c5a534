//! Standard output that is shared with the input, which flushes it before waiting.
//!
//! A reader of a live capture sees every line as soon as there is nothing more to read, and large inputs are still written
//! in large pieces.

use std::cell::RefCell;
use std::io::{self, BufWriter, Stdout, Write};
use std::rc::Rc;

/// The buffered standard output. Clones share the buffer.
#[derive(Clone, Debug)]
pub(crate) struct LiveOutput(Rc<RefCell<BufWriter<Stdout>>>);

impl LiveOutput {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(BufWriter::with_capacity(1 << 16, io::stdout()))))
    }
}

impl Write for LiveOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}
