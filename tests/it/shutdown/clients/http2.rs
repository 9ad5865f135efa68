//! HTTP/2: several clients on one connection.

use std::{error::Error, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Outcome, Report, Traffic, parse_response};

/// Sends requests until connections are refused.
pub(super) async fn run(traffic: Arc<Traffic>, mut reports: Vec<Report>) -> Vec<Report> {
    loop {
        let stream = match traffic.connect("h2").await {
            Ok(Some(stream)) => stream,
            Ok(None) => return reports,
            Err(error) => {
                reports[0].failed.push(error);
                return reports;
            }
        };
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("the handshake reads nothing");
        // Its errors are reported by the requests.
        let connection = tokio::spawn(async { drop(connection.await) });
        let each = reports
            .iter_mut()
            .map(|report| send_requests(&traffic, report, sender.clone()));
        join_all(each).await;
        drop(sender);
        connection.await.expect("no panic");
    }
}

/// Sends requests until the connection takes no more.
async fn send_requests(
    traffic: &Traffic,
    report: &mut Report,
    mut sender: SendRequest<Full<Bytes>>,
) {
    loop {
        let request = Request::post(format!("http://{}/v1/capacity", traffic.address))
            .header("content-type", "application/json")
            .body(Full::from(report.next_body(0)))
            .expect("a request");
        let outcome = match sender.try_send_request(request).await {
            Ok(response) => {
                let status = response.status().as_u16();
                match response.into_body().collect().await {
                    Ok(body) => parse_response(status, &body.to_bytes()),
                    Err(error) => Err(format!("in the middle of a response: {error:?}")),
                }
            }
            Err(mut error) => match error.take_message() {
                Some(_never_sent) => Ok(Outcome::Unprocessed),
                None => outcome_of_error(&error.into_error()),
            },
        };
        let continues = matches!(outcome, Ok(Outcome::Granted(_)));
        traffic.record(report, outcome);
        if !continues {
            return;
        }
    }
}

/// GOAWAY tells which requests the server did not process (RFC 9113, section 6.8). Any other error
/// is a failure.
fn outcome_of_error(error: &hyper::Error) -> Result<Outcome, String> {
    let reason = error.source().and_then(|it| it.downcast_ref::<h2::Error>());
    match reason {
        Some(it)
            if it.is_go_away() && it.is_remote() && it.reason() == Some(h2::Reason::NO_ERROR) =>
        {
            Ok(Outcome::Unprocessed)
        }
        Some(_) | None => Err(format!("{error:?}")),
    }
}
