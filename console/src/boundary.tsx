import { Component, type ReactNode } from "react";

// Messages of browsers if a part of the console could not be loaded. Browsers do not retry.
const lost = /dynamically imported module|importing a module script/i;

/** Keeps the shell alive if a page throws. If away is set, the engine does not respond. */
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
  /**
   * Reloads the page when the engine is back. If the engine answers the first request, it was not
   * away, so a newer version has replaced it. The page is then not reloaded automatically, because
   * that might never end.
   */
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
          <strong>{away === false ? "This page is out of date" : "The engine cannot be reached"}</strong>
          <p>{away === false ? "The engine was upgraded after this page was loaded. Reload it." : "Check that it is running. The page keeps trying."}</p>
          {away === false && (
            <p>
              <button type="button" className="button" onClick={() => location.reload()}>
                Reload
              </button>
            </p>
          )}
        </div>
      );
    return (
      <div className="notice bad" role="alert">
        <strong>This page failed</strong>
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
