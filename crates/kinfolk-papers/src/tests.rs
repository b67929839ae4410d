use super::*;
use crate::paper::{FOLDERS, Folder};
use kinfolk::ErrorKind;
use kinfolk::run::Unwatched;

fn papers(quick: bool) -> Vec<Paper> {
    FOLDERS.iter().map(|folder| folder.read(quick).unwrap()).collect()
}

fn cell(judge: Option<(Judge, f64)>, average: Average) -> Cell {
    let read = Formula::parse("0").unwrap();
    Cell { name: "a".into(), paper: Some(2.0), reference: Some(3.0), judge, average, read, best: None }
}

#[test]
fn medians_and_judgements_by_hand() {
    let values = [9.0, 1.0, 2.0, 4.0];
    let result = |judge, tolerance, average| cell(Some((judge, tolerance)), average).result(&values);
    let mean = result(Judge::AtLeast, 0.0, Average::Mean);
    assert_eq!((mean.ours, mean.within, mean.reference), (Some(4.0), Some(true), Some(3.0)));
    let middle = result(Judge::AtMost, 0.5, Average::Median);
    assert_eq!((middle.ours, middle.within), (Some(3.0), Some(false)));
    assert!(mean.sd.is_some() && middle.sd.is_none());
    assert_eq!(result(Judge::AtMost, 1.0, Average::Median).within, Some(true));
    assert_eq!(result(Judge::Near, 0.9, Average::Mean).within, Some(false));
    assert_eq!(result(Judge::Near, 0.0, Average::Median).within, Some(true));
    assert_eq!(result(Judge::AtMostReference, 0.9, Average::Mean).within, Some(false));
    assert_eq!(result(Judge::AtMostReference, 0.0, Average::Median).within, Some(true));
    assert_eq!(cell(None, Average::Mean).result(&values).within, None);
    assert_eq!(cell(None, Average::Median).result(&[]).ours, None);
}

/// Notes what is left out; a case that begins raises the stop.
struct Noted {
    skipped: Vec<String>,
    began: Vec<String>,
    stop: Arc<AtomicBool>,
}

impl WatchCases for Noted {
    fn skipped(&mut self, experiment: &str, why: &Error) {
        self.skipped.push(format!("{experiment}: {why}"));
    }

    fn case(&mut self, experiment: &str, _: &str, _: u64, _: u64) -> Box<dyn Watch> {
        self.began.push(experiment.to_string());
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        Box::new(Unwatched)
    }
}

const NOTHING: &str = r#"{"paper": "p", "experiments": []}"#;
const NEAR: &str = "[data]\nsource = \"linear\"\nclients = 4\nsamples = 8\ndimension = 2\n[model]\nkind = \"linear\"\n\
                    [[method]]\nname = \"fedavg\"\nrounds = 2\nstep = 0.1";

const FAR: &str = "[data]\nsource = \"table\"\npath = \"nowhere.csv\"\nclient = \"a\"\ntarget = \"b\"\n[model]\nkind = \"linear\"\n\
                   [[method]]\nname = \"fedavg\"";

/// A cut-down paper of these experiments, `near` or `far`.
fn tiny(experiments: &[&str], recorded: &'static str) -> Paper {
    let mut text = "title = ''\ncells.all = [{ cell = 'error', read = 'fedavg.metric.mean' }]\n".to_string();
    for name in experiments {
        text += &format!("[[experiment]]\nname = '{name}'\ntitle = ''\nfile = '{name}'\n");
        text += "case = [{ name = 'a', cells = 'all', repeats = 9, quick.repeats = 2 }]\n";
    }
    let folder =
        Folder { name: "p", paper: text.leak(), experiments: &[("near", NEAR), ("far", FAR)], recorded: [recorded; 2] };
    folder.read(true).unwrap()
}

#[test]
fn experiments_without_their_data_are_left_out_unless_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let reproduced = |experiments: &[&str], experiment: Option<&str>| {
        let stop = Arc::new(AtomicBool::new(false));
        let mut noted = Noted { skipped: Vec::new(), began: Vec::new(), stop: stop.clone() };
        let plan = Plan {
            experiment,
            repeats: None,
            folder: folder.path(),
            threads: 1,
            backend: Arc::new(kinfolk::compute::Cpu),
            stop,
        };
        let error = reproduce(&tiny(experiments, NOTHING), &plan, &mut noted).unwrap_err();
        (error, noted.skipped, noted.began)
    };
    let missing = "no file nowhere.csv\n  hint: experiments/p/README.md says how it is made";
    let both = ["far", "near"];
    let (error, skipped, began) = reproduced(&both, None);
    assert_eq!(
        (error.kind(), skipped, began),
        (ErrorKind::Stopped, vec![format!("far: {missing}")], vec!["near".into()])
    );
    for (experiments, named) in [(&both[..], Some("far")), (&["far"], None)] {
        let (error, skipped, began) = reproduced(experiments, named);
        assert_eq!((error.to_string().as_str(), skipped.len(), began.len()), (missing, 0, 0));
    }
}

#[test]
fn a_ledger_is_of_no_use_for_other_cells() {
    let reproduction = &mut papers(true)[0].experiments[0];
    let before = reproduction.key(&reproduction.cases[0], 0).unwrap();
    reproduction.cases[0].cells.swap(0, 1);
    assert_ne!(reproduction.key(&reproduction.cases[0], 0).unwrap(), before);
}

#[test]
fn a_cut_down_case_compares_with_no_paper() {
    let compared = |quick: bool| {
        let papers = papers(quick);
        let cases = papers.iter().flat_map(|paper| &paper.experiments).flat_map(|experiment| &experiment.cases);
        cases.flat_map(|case| &case.cells).filter(|cell| cell.paper.or(cell.reference).is_some()).count()
    };
    assert!(compared(true) == 0 && compared(false) > 0);
}

#[test]
fn a_cut_down_run_that_misses_its_kept_number_falls_short() {
    let run = |recorded: String| {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut noted = Noted { skipped: Vec::new(), began: Vec::new(), stop: Arc::new(AtomicBool::new(false)) };
        let plan = Plan {
            experiment: None,
            repeats: None,
            folder: folder.path(),
            threads: 1,
            backend: Arc::new(kinfolk::compute::Cpu),
            stop,
        };
        reproduce(&tiny(&["near"], recorded.leak()), &plan, &mut noted).unwrap()
    };
    let first = run(NOTHING.into());
    assert_eq!((first[0].cells[0].recorded, first[0].cells[0].within), (None, None));
    let kept = Recorded::of("p", &first);
    let again = run(kept.to_json().unwrap());
    assert_eq!((again[0].cells[0].recorded, again[0].cells[0].within), (first[0].cells[0].ours, Some(true)));
    let mut harmed = first.clone();
    harmed[0].cells[0].ours = first[0].cells[0].ours.map(|ours| 0.99 * ours);
    assert_eq!(run(Recorded::of("p", &harmed).to_json().unwrap())[0].cells[0].within, Some(false));
}

#[test]
fn a_method_that_diverged_has_taken_all_rounds() {
    let odcl = &mut paper("odcl", true).unwrap();
    let e3 = &mut odcl.experiments[2];
    let small = ["data.clients=4", "data.samples=20", "method.ifca.rounds=7", "method.ifca.step=1e200"];
    e3.cases[0].changes.extend(small.map(String::from));
    let experiment = e3.experiment(&e3.cases[0], 0, &[]).unwrap();
    let record = run(&experiment, &Options { threads: 1, ..Options::default() }, &mut Unwatched).unwrap();
    let ifca = record.summary.methods.iter().find(|method| method.label == "ifca").unwrap();
    assert_eq!(ifca.repeats[0].status, "diverged");
    let values: Vec<_> = e3.cases[0].cells[1..].iter().map(|cell| cell.read.read(&record)).collect();
    assert_eq!(values, [Some(7.0), Some(7.0), Some(1.0)]);
}

fn cells(paper: &Paper) -> Vec<(&str, &str)> {
    let mut cells = Vec::new();
    for experiment in &paper.experiments {
        let named = experiment.cases.iter().flat_map(|case| &case.cells);
        cells.extend(named.map(|cell| (experiment.name.as_str(), cell.name.as_str())));
    }
    cells
}

#[test]
fn no_recorded_number_is_read_by_nobody() {
    let mut lost = Vec::new();
    for paper in papers(false).iter().chain(&papers(true)) {
        let known = cells(paper);
        for name in paper.recorded.names() {
            let readers = known.iter().filter(|known| **known == name).count();
            let twice = paper.recorded.names().filter(|other| *other == name).count() > 1;
            if readers != 1 || twice {
                lost.push(format!("{} {}: {}", paper.name, name.0, name.1));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn every_cut_down_cell_is_compared_with_a_kept_number() {
    // Their tables are made by a script that wants PyTorch.
    let made_by_hand = ["e3-mnist", "e3-fashion-mnist"];
    for paper in &papers(true) {
        for (experiment, cell) in cells(paper) {
            let kept = paper.recorded.find(experiment, cell).is_some();
            assert!(kept || made_by_hand.contains(&experiment), "{} {experiment}: {cell}", paper.name);
        }
    }
}

#[test]
fn every_case_of_every_paper_can_be_read() {
    for paper in papers(true).iter().chain(&papers(false)) {
        for reproduction in &paper.experiments {
            assert!(!reproduction.cases.is_empty(), "{} {}", paper.name, reproduction.name);
            for case in &reproduction.cases {
                let parsed = reproduction.experiment(case, 0, &[]);
                assert!(parsed.is_ok(), "{} {}: {}", reproduction.name, case.name, parsed.err().unwrap());
            }
        }
    }
}

#[test]
fn every_file_of_a_paper_is_used() {
    for folder in &FOLDERS {
        for (file, _) in folder.experiments {
            assert!(folder.paper.contains(&format!("file = \"{file}\"")), "{} {file}", folder.name);
        }
    }
}
