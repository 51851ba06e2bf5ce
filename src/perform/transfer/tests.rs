//! Two directories and the bytes between them.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const LARGE: u64 = 1 << 30;

struct Pair {
    board: TempDir,
    desk: TempDir,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { board: tempfile::tempdir().unwrap(), desk: tempfile::tempdir().unwrap() };
        pair.write("a-001/journal.jsonl", "opened\nstarted\n");
        pair.write("a-001/plan.json", "{}");
        pair.write("a-001/trials/t 1/it's.log", "said\n");
        pair.write("a-001/trials/t 1/empty", "");
        pair
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.board.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn told(&self) -> Vec<u8> {
        let mut told = Vec::new();
        tell(self.desk.path(), &mut told).unwrap();
        told
    }

    fn sent(&self, file_max: u64) -> Vec<u8> {
        let mut sent = Vec::new();
        send(self.board.path(), &[], file_max, &self.told()[..], &mut sent).unwrap();
        sent
    }

    fn pull(&self, file_max: u64) -> Received {
        receive(self.desk.path(), file_max, &mut &self.sent(file_max)[..]).unwrap()
    }

    fn on_desk(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.desk.path().join(path)).ok()
    }
}

#[test]
fn only_what_is_new_or_has_grown_comes_again() {
    let pair = Pair::new();
    let first = pair.pull(LARGE);
    assert_eq!((first.runs, first.files), (1, 4), "{first:?}");
    assert_eq!(pair.on_desk("a-001/trials/t 1/it's.log").unwrap(), "said\n");
    assert_eq!(pair.pull(LARGE).files, 0);
    pair.write("a-001/journal.jsonl", "opened\nstarted\njudged\n");
    pair.write("a-001/trials/t 2/out", "2");
    assert_eq!(pair.pull(LARGE).files, 2);
    assert!(pair.on_desk("a-001/journal.jsonl").unwrap().ends_with("judged\n"));
}

#[test]
fn what_was_changed_on_the_desk_is_mended() {
    let pair = Pair::new();
    pair.pull(LARGE);
    fs::write(pair.desk.path().join("a-001/plan.json"), "[]").unwrap();
    assert_eq!(pair.pull(LARGE).files, 1);
    assert_eq!(pair.on_desk("a-001/plan.json").unwrap(), "{}");
}

#[test]
fn another_run_of_the_same_id_replaces_nothing_and_the_others_come() {
    let pair = Pair::new();
    pair.pull(LARGE);
    pair.write("a-001/journal.jsonl", "opened after the board was written anew\n");
    pair.write("b-001/journal.jsonl", "opened\n");
    let received = pair.pull(LARGE);
    assert_eq!(received.others, ["a-001".parse::<RunId>().unwrap()]);
    assert_eq!(received.files, 1);
    assert!(pair.on_desk("a-001/journal.jsonl").unwrap().contains("started"));
    assert!(pair.on_desk("b-001/journal.jsonl").is_some());
}

#[test]
fn every_cut_of_the_connection_leaves_whole_files_and_the_next_pull_completes_them() {
    let whole = Pair::new().sent(LARGE);
    for cut in (0..whole.len()).step_by(7) {
        let pair = Pair::new();
        let error = receive(pair.desk.path(), LARGE, &mut &whole[..cut]).unwrap_err();
        assert!(matches!(error, TransferError::CutOff), "{cut}: {error}");
        for (path, text) in [("a-001/journal.jsonl", "opened\nstarted\n"), ("a-001/plan.json", "{}")] {
            assert!(pair.on_desk(path).is_none_or(|found| found == text), "{cut}: {path} is not whole");
        }
        pair.pull(LARGE);
        assert_eq!(pair.on_desk("a-001/trials/t 1/it's.log").unwrap(), "said\n");
    }
}

#[test]
fn bytes_that_were_changed_on_the_way_are_not_taken() {
    let pair = Pair::new();
    let mut sent = pair.sent(LARGE);
    let place = sent.windows(5).position(|window| window == b"said\n").unwrap();
    sent[place] = b'S';
    let error = receive(pair.desk.path(), LARGE, &mut &sent[..]).unwrap_err();
    assert!(matches!(error, TransferError::Digest(_)), "{error}");
    assert!(pair.on_desk("a-001/trials/t 1/it's.log").is_none());
}

#[test]
fn links_and_large_files_stay_on_the_board() {
    let pair = Pair::new();
    symlink("/etc/passwd", pair.board.path().join("a-001/trials/passwd")).unwrap();
    symlink("/etc", pair.board.path().join("a-001/trials/etc")).unwrap();
    pair.write("a-001/trials/core", "0123456789abcdef0123456789");
    let received = pair.pull(20);
    assert_eq!(received.files, 4);
    let [(path, why)] = &received.left[..] else { panic!("{received:?}") };
    assert!(path == "a-001/trials/core" && why.contains("--file-max"), "{why}");
}

#[test]
fn a_hostile_board_writes_nothing_outside_of_its_directory() {
    for path in ["../x", "/etc/x", "a-001/../../x", "a-001", "x", "a-001/\u{1b}[2J", "a-001/", "", "./a-001/x/.."] {
        let pair = Pair::new();
        let header = Header::File { path: path.into(), bytes: 1, digest: ContentDigest::of(b"x") };
        let mut sent = Vec::new();
        write_line(&mut sent, &header).unwrap();
        sent.push(b'x');
        let error = receive(pair.desk.path(), LARGE, &mut &sent[..]).unwrap_err();
        assert!(matches!(error, TransferError::Speech(_)), "{path}: {error}");
        assert!(fs::read_dir(pair.desk.path()).unwrap().next().is_none());
    }
    let huge = b"{\"file\":{\"path\":\"a-001/x\",\"bytes\":99999999999999,\"digest\":\"";
    let huge = [&huge[..], &[b'0'; 64], b"\"}}\n"].concat();
    assert!(receive(Path::new("/nowhere"), LARGE, &mut &huge[..]).is_err());
}
