//! The HTTP server: the page, its data, the metrics, and the form.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::assets;
use super::choices::{OFFERS, Offer, Request as RunRequest, Wish};
use super::jobs::{Job, Jobs, StartError};
use super::metrics;
use super::monitor::Monitor;
use super::security::{Guard, Refusal, protect};
use crate::recent::{RecentOnDemand, RecentPackets};

/// The maximum size of a request's body.
const MAX_BODY: usize = 16 << 10;

/// The last packets of QPs (`--packets`).
#[derive(Debug)]
pub(super) enum Recent {
    Always(RecentPackets),
    OnDemand(RecentOnDemand),
    Never,
}

/// What the handlers share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) guard: Arc<Guard>,
    pub(super) monitor: Arc<Monitor>,
    pub(super) recent: Arc<Recent>,
    /// `None` unless `--allow-run` is given.
    pub(super) jobs: Option<Arc<Jobs>>,
}

/// All routes. The source of every request is checked before anything else.
pub(super) fn router(shared: Shared) -> Router {
    let data = Router::new()
        .route("/api/state", get(state))
        .route("/api/history", get(history))
        .route("/api/qp", get(queue_pair))
        .route("/api/packets", get(packets))
        .route("/api/offers", get(offers))
        .route("/api/run", get(job).post(run))
        .route("/api/run/stop", post(stop))
        .layer(middleware::from_fn_with_state(shared.clone(), require_token));
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(openmetrics))
        .route("/assets/{name}", get(asset))
        .merge(data)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(shared.clone(), check_source))
        .with_state(shared)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (StatusCode::FORBIDDEN, self.message()).into_response()
    }
}

async fn check_source(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let mut response = match shared.guard.check_source(request.headers(), authority.as_deref()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    protect(response.headers_mut());
    response
}

async fn require_token(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    match shared.guard.check_data(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[derive(Deserialize)]
struct PageQuery {
    token: Option<String>,
}

async fn page(State(shared): State<Shared>, Query(query): Query<PageQuery>) -> Response {
    match shared.guard.check_page(query.token.as_deref()) {
        Ok(()) => assets::page(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Scripts and styles: they are the same for everyone and contain no data, so they need no token.
async fn asset(Path(name): Path<String>) -> Response {
    assets::find(&name).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

async fn openmetrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if let Err(refusal) = shared.guard.check_metrics(&headers) {
        return refusal.into_response();
    }
    let text = shared.monitor.with_snapshot(metrics::text);
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// What the page shows now.
async fn state(State(shared): State<Shared>) -> Response {
    ([(CONTENT_TYPE, "application/json")], shared.monitor.state()).into_response()
}

/// The charts' points from before the page was opened.
async fn history(State(shared): State<Shared>) -> Response {
    Json(shared.monitor.history()).into_response()
}

#[derive(Deserialize)]
struct QpQuery {
    key: String,
}

/// All that is known of one QP; 404 if it is gone.
async fn queue_pair(State(shared): State<Shared>, Query(query): Query<QpQuery>) -> Response {
    match shared.monitor.queue_pair(&query.key) {
        Some(found) => Json(found).into_response(),
        None => {
            (StatusCode::NOT_FOUND, "this queue pair does not exist any more\n").into_response()
        }
    }
}

/// The last packets of one QP, which may be gone; 404 if packets are not collected.
async fn packets(State(shared): State<Shared>, Query(query): Query<QpQuery>) -> Response {
    let Some(qp) = shared.monitor.address(&query.key) else {
        return (StatusCode::BAD_REQUEST, "the key is not PID/DEVICE/QPN\n").into_response();
    };
    let found = match &*shared.recent {
        Recent::Always(recent) => Ok(recent.of(&qp)),
        Recent::OnDemand(recent) => recent.of(&qp),
        Recent::Never => Err("packets are not collected: --packets never".to_owned()),
    };
    match found {
        Ok(recent) => Json(recent).into_response(),
        Err(message) => (StatusCode::NOT_FOUND, format!("{message}\n")).into_response(),
    }
}

#[derive(Serialize)]
struct Offers {
    allowed: bool,
    offers: &'static [Offer],
}

async fn offers(State(shared): State<Shared>) -> Json<Offers> {
    Json(Offers { allowed: shared.jobs.is_some(), offers: OFFERS })
}

#[derive(Serialize)]
struct Current {
    job: Option<Job>,
}

async fn job(State(shared): State<Shared>) -> Result<Json<Current>, Refusal> {
    let jobs = shared.jobs.as_ref().ok_or(Refusal::RunIsOff)?;
    Ok(Json(Current { job: jobs.current() }))
}

async fn run(State(shared): State<Shared>, wish: Result<Json<Wish>, JsonRejection>) -> Response {
    let Some(jobs) = &shared.jobs else { return Refusal::RunIsOff.into_response() };
    let wish = match wish {
        Ok(Json(wish)) => wish,
        Err(rejection) => return rejection.into_response(),
    };
    let started = match RunRequest::new(&wish) {
        Ok(request) => jobs.start(&request),
        Err(message) => return (StatusCode::BAD_REQUEST, message).into_response(),
    };
    match started {
        Ok(_) => (StatusCode::ACCEPTED, Json(Current { job: jobs.current() })).into_response(),
        Err(StartError::Busy) => {
            (StatusCode::CONFLICT, "another command is running: wait for it or stop it\n")
                .into_response()
        }
        Err(StartError::System(error)) => {
            let message = format!("cannot start the command: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}

async fn stop(State(shared): State<Shared>) -> Result<StatusCode, Refusal> {
    shared.jobs.as_ref().ok_or(Refusal::RunIsOff)?.stop();
    Ok(StatusCode::ACCEPTED)
}
