//! HTTP/2: several clients on one connection.

use std::{error::Error, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Fate, Report, Traffic, granted};

/// Asks until connections are refused.
pub(super) async fn call(traffic: Arc<Traffic>, mut clients: Vec<Report>) -> Vec<Report> {
    loop {
        let stream = match traffic.connect("h2").await {
            Ok(Some(stream)) => stream,
            Ok(None) => return clients,
            Err(error) => {
                clients[0].failed.push(error);
                return clients;
            }
        };
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("nothing is read for it");
        // What goes wrong with it is told to the requests.
        let connection = tokio::spawn(async { drop(connection.await) });
        let each = clients
            .iter_mut()
            .map(|client| ask(&traffic, client, sender.clone()));
        join_all(each).await;
        drop(sender);
        connection.await.expect("no panic");
    }
}

/// Asks until the connection takes no further request.
async fn ask(traffic: &Traffic, client: &mut Report, mut sender: SendRequest<Full<Bytes>>) {
    loop {
        let request = Request::post(format!("http://{}/v1/capacity", traffic.address))
            .header("content-type", "application/json")
            .body(Full::from(client.asks(0)))
            .expect("a request");
        let fate = match sender.try_send_request(request).await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                match answer.into_body().collect().await {
                    Ok(body) => granted(status, &body.to_bytes()),
                    Err(error) => Err(format!("in the middle of an answer: {error:?}")),
                }
            }
            Err(mut error) => match error.take_message() {
                Some(_never_sent) => Ok(Fate::NotTaken),
                None => told(&error.into_error()),
            },
        };
        let goes_on = matches!(fate, Ok(Fate::Answered(_)));
        traffic.note(client, fate);
        if !goes_on {
            return;
        }
    }
}

/// What became of a request that has no answer. The server says with GOAWAY which of them it has not taken, and takes (RFC 9113, 6.8);
/// those that it has taken fail with another error, if they do.
fn told(error: &hyper::Error) -> Result<Fate, String> {
    let reason = error.source().and_then(|it| it.downcast_ref::<h2::Error>());
    match reason {
        Some(it)
            if it.is_go_away() && it.is_remote() && it.reason() == Some(h2::Reason::NO_ERROR) =>
        {
            Ok(Fate::NotTaken)
        }
        Some(_) | None => Err(format!("{error:?}")),
    }
}
