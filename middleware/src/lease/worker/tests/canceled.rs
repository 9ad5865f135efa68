//! Canceled waits for the worker.

use super::*;
use crate::testing::poll_and_drop;

const A_WHILE: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn canceled_ready_changes_nothing() {
    for polls in 0..10 {
        let plane = Plane::new(|_| Reply::Hang);
        let (doorman, _worker) = run(builder(), &plane);
        let rate = doorman.rate("db");
        let ready = doorman.ready(5 * SECOND);
        assert_eq!(poll_and_drop(ready, polls, A_WHILE, |_| {}).await, None);
        plane.set(grants(10.0));
        doorman.ready(10 * SECOND).await.unwrap();
        assert_eq!((held(&doorman, "db"), take(&rate, 20)), (Some(10.0), 10));
    }
}

#[tokio::test(start_paused = true)]
async fn canceled_shutdown_still_releases_leases() {
    for polls in 1.. {
        let plane = Plane::new(grants(10.0));
        let (doorman, worker) = run(builder(), &plane);
        // The worker must not end for lack of handles.
        let _other = doorman.clone();
        let _rate = doorman.rate("db");
        doorman.ready(SECOND).await.unwrap();
        let grants = plane.calls().len();
        // Neither server confirms the release.
        plane.set(|_| Reply::Hang);
        let ended = poll_and_drop(doorman.shutdown(), polls, A_WHILE, |_| {}).await;
        worker.await.unwrap();
        let hosts: Vec<_> = plane.calls()[grants..]
            .iter()
            .map(|call| (call.release().is_some(), call.host.clone()))
            .collect();
        assert_eq!(
            hosts,
            [(true, "a".to_owned()), (true, "b".to_owned())],
            "{polls} polls"
        );
        if let Some(ended) = ended {
            assert!(matches!(ended, Err(NotReleased::Failed(_))), "{ended:?}");
            assert!(polls > 4, "{polls}");
            break;
        }
    }
}
