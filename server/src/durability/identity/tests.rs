use std::fs;

use super::{open as take, *};

const NOW: u64 = 1_795_000_000;

fn open(path: &Path, node: Option<NodeId>, unix_now: u64) -> Result<Identity, IdentityError> {
    file::create_directory(path)?;
    take(path, node, unix_now).map(|(identity, _)| identity)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn the_first_start_makes_a_directory_a_name_and_an_epoch() {
    let parent = directory();
    let path = parent.path().join("a/b");
    let first = open(&path, None, NOW).unwrap();
    assert_eq!(first.directory, Directory::Fresh);
    assert_eq!(first.epoch.get(), NOW);
    assert!(first.node.as_str().starts_with("node-"), "{}", first.node);

    let elsewhere = open(&parent.path().join("c"), None, NOW).unwrap();
    assert_ne!(elsewhere.node, first.node);
}

#[test]
fn the_name_stays_and_the_epoch_grows_from_start_to_start() {
    let directory = directory();
    let first = open(directory.path(), None, NOW).unwrap();
    let second = open(directory.path(), None, NOW).unwrap();
    assert_eq!(second.directory, Directory::Used);
    assert_eq!(second.node, first.node);
    assert_eq!(second.epoch.get(), NOW + 1);
    // The wall clock may go back; the epoch may not.
    assert_eq!(
        open(directory.path(), None, 5).unwrap().epoch.get(),
        NOW + 2
    );
    assert_eq!(
        open(directory.path(), None, NOW + 100).unwrap().epoch.get(),
        NOW + 100
    );
}

#[test]
fn a_name_that_is_given_is_kept() {
    let directory = directory();
    let given = NodeId::new("eu-west").unwrap();
    let first = open(directory.path(), Some(given.clone()), NOW).unwrap();
    assert_eq!(first.node, given);
    let second = open(directory.path(), None, NOW).unwrap();
    assert_eq!(second.node, given);
    let renamed = NodeId::new("eu-east").unwrap();
    let third = open(directory.path(), Some(renamed.clone()), NOW).unwrap();
    assert_eq!((third.node, third.epoch.get()), (renamed, NOW + 2));
}

#[test]
fn what_makes_no_sense_is_named_and_left_as_it_is() {
    for text in [
        &b""[..],
        b"{",
        b"null",
        b"{\"node\":\"a\"}",
        b"{\"node\":\"\",\"epoch\":1}",
        b"{\"node\":\"a\",\"epoch\":-1}",
        b"{\"node\":\"a\",\"epoch\":9007199254740991}",
        b"\xff\xfe",
    ] {
        let directory = directory();
        let file = directory.path().join(FILE);
        fs::write(&file, text).unwrap();
        let error = open(directory.path(), None, NOW).unwrap_err();
        assert!(matches!(error, IdentityError::Corrupted { .. }), "{error}");
        assert!(
            error.to_string().contains(&*file.to_string_lossy()),
            "{error}"
        );
        assert_eq!(fs::read(&file).unwrap(), text);
    }
}

#[test]
fn a_file_in_the_way_is_named() {
    let directory = directory();
    let file = directory.path().join("data");
    fs::write(&file, "").unwrap();
    let error = open(&file, None, NOW).unwrap_err();
    assert!(
        error.to_string().contains(&*file.to_string_lossy()),
        "{error}"
    );
}

#[test]
fn a_half_written_new_file_is_not_believed() {
    let directory = directory();
    let first = open(directory.path(), None, NOW).unwrap();
    fs::write(directory.path().join("identity.json.new"), "{\"nod").unwrap();
    let second = open(directory.path(), None, NOW).unwrap();
    assert_eq!(second.node, first.node);
}
