//! Completion statuses with the names and numbers of libibverbs (`enum ibv_wc_status`).

use ferroce::Status;

/// Name and number.
pub(super) const fn code(status: Status) -> (u8, &'static str) {
    match status {
        Status::Success => (0, "IBV_WC_SUCCESS"),
        Status::LocalLength => (1, "IBV_WC_LOC_LEN_ERR"),
        Status::LocalOperation => (2, "IBV_WC_LOC_QP_OP_ERR"),
        Status::LocalProtection => (4, "IBV_WC_LOC_PROT_ERR"),
        Status::Flushed => (5, "IBV_WC_WR_FLUSH_ERR"),
        Status::Binding => (6, "IBV_WC_MW_BIND_ERR"),
        Status::BadResponse => (7, "IBV_WC_BAD_RESP_ERR"),
        Status::LocalAccess => (8, "IBV_WC_LOC_ACCESS_ERR"),
        Status::RemoteInvalidRequest => (9, "IBV_WC_REM_INV_REQ_ERR"),
        Status::RemoteAccess => (10, "IBV_WC_REM_ACCESS_ERR"),
        Status::RemoteOperation => (11, "IBV_WC_REM_OP_ERR"),
        Status::RetryExceeded => (12, "IBV_WC_RETRY_EXC_ERR"),
        Status::RnrRetryExceeded => (13, "IBV_WC_RNR_RETRY_EXC_ERR"),
    }
}

/// `IBV_WC_RETRY_EXC_ERR (12)`.
pub(super) fn words(status: Status) -> String {
    let (number, name) = code(status);
    format!("{name} ({number})")
}
