use doorman_core::etcd::ReplyHeader;

use super::*;
use crate::{
    etcd::testing::{Member, client},
    leasing::SharedLedger,
};

const NEWEST: ReplyHeader = ReplyHeader {
    cluster: 1,
    raft_term: 5,
    revision: 20,
};
const STALE: ReplyHeader = ReplyHeader {
    revision: 3,
    ..NEWEST
};

#[tokio::test]
async fn stale_member_that_lacks_the_document_gets_none() {
    let newest = Member::with_header(NEWEST).await;
    // It has no newer document than the one seen.
    newest.edit(|reply| reply.replace("\"responses\"", "\"succeeded\":true,\"_\""));
    let stale = Member::with_header(STALE).await;
    let client = client(&[&newest, &stale]);
    let home = tempfile::tempdir().unwrap();
    let store = EtcdStore {
        client: client.clone(),
        keys: Keys::new("p"),
        name: "etcd:p".to_owned(),
        data_dir: home.path().to_owned(),
        seen: Mutex::new(Seen {
            modified: 5,
            revision: 1,
            invalid: None,
            outage: None,
        }),
    };
    let document = Arc::new(Document::built_in());
    let ledger = Arc::new(SharedLedger::with_document(Arc::clone(&document)));
    let active = ActiveDocument::new(ledger, document);
    let mut seen = store.seen.lock().await;
    store.refresh(&mut seen, &active, POLL).await.unwrap();
    client.begin_with(1);
    let error = store.refresh(&mut seen, &active, POLL).await.unwrap_err();
    assert!(error.to_string().contains("stale reply"), "{error}");
    assert_eq!(stale.calls().len(), 1, "nothing was written");
    store.refresh(&mut seen, &active, POLL).await.unwrap();
}
