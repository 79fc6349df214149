import { Component, type ReactNode } from "react";

// What browsers say where a part of the console that a page needs could not be loaded. They do not ask for it a second time.
const lost = /dynamically imported module|importing a module script/i;

/** Keeps the shell alive where a page breaks. away: the engine does not answer. */
export class Boundary extends Component<{ children: ReactNode }, { error?: Error; away?: boolean }> {
  state: { error?: Error; away?: boolean } = {};
  again?: ReturnType<typeof setTimeout>;
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  componentDidCatch(error: Error) {
    if (lost.test(error.message)) void this.look(false);
  }
  componentWillUnmount() {
    clearTimeout(this.again);
  }
  /** Loads the page anew once the engine is back. Where it answers at the first look it was replaced, and loading by itself might never end. */
  async look(wasAway: boolean) {
    const back = await fetch(location.href.split("#")[0] ?? "", { cache: "no-store" }).then(
      (r) => r.ok,
      () => false,
    );
    if (back && wasAway) return location.reload();
    this.setState({ away: !back });
    if (!back) this.again = setTimeout(() => void this.look(true), 5000);
  }
  render() {
    const { error, away } = this.state;
    if (!error) return this.props.children;
    if (lost.test(error.message))
      return (
        <div className="notice bad" role="alert">
          <strong>{away === false ? "This page is older than the engine" : "The engine cannot be reached"}</strong>
          <p>{away === false ? "The engine was replaced since it was loaded, and has other parts." : "Is it running? The page goes on trying."}</p>
          {away === false && (
            <p>
              <button type="button" className="button" onClick={() => location.reload()}>
                Load it anew
              </button>
            </p>
          )}
        </div>
      );
    return (
      <div className="notice bad" role="alert">
        <strong>This page broke</strong>
        <p>{error.message}</p>
        <p>
          <button type="button" className="button" onClick={() => this.setState({ error: undefined })}>
            Try again
          </button>
        </p>
      </div>
    );
  }
}
