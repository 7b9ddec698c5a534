//! libibverbs: the `ibv_` functions, and the function tables that inline functions of its header call through.
//!
//! | file | objects |
//! |---|---|
//! | `device`, `query` | the device list; attributes of devices, ports and GID tables |
//! | `context` | opening devices, and the function table of a context |
//! | `import` | finding an open device by a copy of its command descriptor |
//! | `pd`, `xrc` | protection domains, parent domains, XRC domains |
//! | `mr`, `mw`, `dm`, `buffer` | memory regions, memory windows, device memory, allocated buffers |
//! | `cq`, `cq_ex` | completion queues and channels; the extended polling interface |
//! | `qp`, `qp_attributes`, `srq`, `ah` | queue pairs, their attributes, shared receive queues, address handles |
//! | `post`, `post_ex` | posting WRs, by lists and by the extended interface |
//! | `async_event` | asynchronous events |
//! | `names`, `rate` | names of codes, rates |
//! | `refuse` | functions without an implementation |

pub(crate) mod ah;
pub(crate) mod async_event;
pub(crate) mod buffer;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod cq_ex;
pub(crate) mod device;
pub(crate) mod dm;
mod import;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod names;
pub(crate) mod pd;
pub(crate) mod post;
pub(crate) mod post_ex;
pub(crate) mod qp;
pub(crate) mod qp_attributes;
pub(crate) mod query;
pub(crate) mod rate;
pub(crate) mod refuse;
pub(crate) mod srq;
pub(crate) mod xrc;
